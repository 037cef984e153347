//! A client in a tokio program: it asks the server of `request_reply` while another task does something else, and does
//! not wait for an answer for ever. In Cargo.toml: tsumugi with the feature `tokio`, and tokio with `macros` and `time`.
//!
//! On one host:    cargo run --example request_reply
//! On others:      cargo run --features tokio --example tokio_client -- HOST TEXT [COUNT]

use std::error::Error;
use std::time::Duration;
use tokio::time::{interval, timeout};
use tsumugi::{Config, Endpoint};

const CHANNEL: u16 = 1;
const PATIENCE: Duration = Duration::from_secs(10);

// One thread: an endpoint belongs to the thread that opened it.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [host, text] => run(host, text, 1).await,
        [host, text, count] => match count.parse() {
            Ok(count) => run(host, text, count).await,
            Err(error) => Err(format!("COUNT: {error}").into()),
        },
        _ => Err("say HOST TEXT [COUNT]".into()),
    };
    if let Err(error) = done {
        eprintln!("tokio_client: {error}");
        std::process::exit(1);
    }
}

async fn run(host: &str, text: &str, count: u64) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::open(Config::default())?;
    let server = endpoint.add_peer(host)?;
    let channel = endpoint.channel(CHANNEL)?;
    let ask = async {
        for number in 1..=count {
            channel.send_async(server, format!("{text} {number}").as_bytes()).await?;
            let answer = timeout(PATIENCE, channel.receive_async()).await??;
            println!("{}", String::from_utf8_lossy(&answer));
        }
        Ok::<_, Box<dyn Error>>(())
    };
    let mut ticks = interval(Duration::from_millis(1));
    let tick = async {
        let mut count = 0;
        loop {
            ticks.tick().await;
            count += 1;
            eprint!("\r{count} ticks");
        }
    };
    tokio::select! {
        done = ask => done?,
        () = tick => {}
    }
    drop(channel);
    Ok(endpoint.close_async().await?)
}
