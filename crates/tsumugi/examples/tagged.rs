//! Tagged messages: a worker takes questions, each with its own tag, and sends the answers back in the order that suits
//! it; who asked receives each into the buffer that was meant for it.
//!
//! ```text
//! tagged                    both in this process, over the loopback interface
//! tagged serve [PORT]       the worker, for instance on one node of a lab
//! tagged ask HOST[:PORT]    who asks, on another
//! ```

use tsumugi::message::{Pattern, Port, RequestError};
use tsumugi::{Config, DEFAULT_PORT, Endpoint, SendError};

const CHANNEL: u16 = 1;
const QUESTIONS: u64 = 10;
/// Marks the tag of an answer; the other bits are the question's.
const ANSWER: u64 = 1 << 63;

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match (arguments.first().map(String::as_str), arguments.get(1)) {
        (None, _) => {
            let (tell, told) = std::sync::mpsc::channel();
            let worker = std::thread::spawn(move || -> Outcome {
                let endpoint = Endpoint::open(Config::loopback())?;
                tell.send(endpoint.port())?;
                serve(&endpoint)
            });
            ask(&Endpoint::open(Config::loopback())?, &format!("127.0.0.1:{}", told.recv()?))?;
            worker.join().map_err(|_| "the worker panicked")?
        }
        (Some("serve"), port) => {
            let port = port.map_or(Ok(DEFAULT_PORT), |word| word.parse())?;
            serve(&Endpoint::open(Config::default().port(port))?)
        }
        (Some("ask"), Some(peer)) => ask(&Endpoint::open(Config::default())?, peer),
        _ => Err("say serve, ask HOST, or nothing; see the top of this file".into()),
    }
}

/// Answers every question with as many bytes as it asks for, the last question first.
fn serve(endpoint: &Endpoint) -> Outcome {
    let port = Port::open(endpoint, CHANNEL)?;
    let mut questions = Vec::new();
    for _ in 0..QUESTIONS {
        // From anybody, with any tag; the length is known before the buffer is chosen.
        let claim = port.wait_probe(Pattern::any())?;
        let mut request = port.receive_claimed(claim, vec![0; 8].into());
        let question = port.wait(&mut request)?;
        let status = question.outcome.clone()?;
        questions.push((status.peer, status.tag, u64::from_le_bytes(question.data().try_into()?)));
    }
    let mut answers = Vec::new();
    for (peer, tag, bytes) in questions.into_iter().rev() {
        port.wait_for_room(peer, bytes as usize)?;
        let mut answer = port.buffer(bytes as usize)?;
        answer.fill(tag as u8);
        answers.push(port.send_buffer(peer, tag | ANSWER, answer).map_err(SendError::from)?);
    }
    for answer in port.wait_all(&mut answers)? {
        answer.outcome?;
    }
    endpoint.flush()?;
    Ok(())
}

fn ask(endpoint: &Endpoint, peer: &str) -> Outcome {
    let peer = endpoint.add_peer(peer)?;
    let port = Port::open(endpoint, CHANNEL)?;
    // Long answers, short ones; the buffer of the last is too small.
    let bytes = |tag: u64| 1u64 << (2 * tag);
    let room = |tag: u64| if tag + 1 == QUESTIONS { 1000 } else { bytes(tag) as usize };
    let mut answers: Vec<_> = (0..QUESTIONS)
        .map(|tag| port.receive(Pattern::of(peer, tag | ANSWER), vec![0; room(tag)].into()))
        .collect();
    for tag in 0..QUESTIONS {
        port.send(peer, tag, &bytes(tag).to_le_bytes())?;
    }
    for (tag, answer) in (0..).zip(port.wait_all(&mut answers)?) {
        assert!(answer.data().iter().all(|byte| *byte == tag as u8));
        match &answer.outcome {
            Ok(status) => println!("{} bytes from {}, tag {tag}", status.bytes, status.peer),
            Err(error @ RequestError::Truncated { .. }) => println!("tag {tag}: {error}"),
            Err(error) => return Err(error.clone().into()),
        }
    }
    Ok(())
}
