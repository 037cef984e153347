//! Endpoints in an event loop, tokio's here: a server and a client in one thread, while packets are lost.
//!
//! ```text
//! event_loop [COUNT] [FAULTS]        for example: event_loop 1000 loss=20%
//! ```
//!
//! An endpoint's descriptor is readable when something has arrived and when one of its timers is due. So there is nothing to
//! do but to look whenever it is readable, and no time-out to choose.

use std::error::Error;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tsumugi::{Channel, Config, Endpoint, Message};

const CHANNEL: u16 = 1;

/// An endpoint with a channel, and its descriptor in the event loop.
struct Talker {
    channel: Channel,
    endpoint: Endpoint,
    readable: AsyncFd<OwnedFd>,
}

impl Talker {
    fn open(config: Config) -> Result<Talker, Box<dyn Error>> {
        let endpoint = Endpoint::open(config)?;
        let channel = endpoint.channel(CHANNEL)?;
        let descriptor = endpoint.descriptor().ok_or("nothing to watch here")?.try_clone_to_owned()?;
        // SAFETY: the descriptor is open and the talker's own, and stays so as long as the event loop has it.
        let readable = unsafe { AsyncFd::register(descriptor) }?;
        Ok(Talker { channel, endpoint, readable })
    }

    /// The next message.
    async fn receive(&mut self) -> Result<Message, Box<dyn Error>> {
        loop {
            if let Some(message) = self.channel.try_receive()? {
                return Ok(message);
            }
            // Cleared before the next look, which so misses nothing.
            self.readable.readable().await?.clear_ready();
        }
    }

    /// Closes without holding up the others: all is acknowledged before `close` is called.
    async fn close(self) -> Result<(), Box<dyn Error>> {
        while !self.endpoint.is_flushed() {
            self.endpoint.progress()?;
            if !self.endpoint.is_flushed() {
                self.readable.readable().await?.clear_ready();
            }
        }
        drop(self.channel);
        Ok(())
    }
}

/// Has so many messages answered, one after the other; returns how long that took.
pub(crate) fn run(count: u64, faults: &str) -> Result<Duration, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = Config::loopback().faults(Some(faults.parse()?));
    runtime.block_on(async {
        let mut server = Talker::open(config.clone())?;
        let mut client = Talker::open(config)?;
        let peer = client.endpoint.add_peer(format!("127.0.0.1:{}", server.endpoint.port()))?;
        let serve = async {
            for _ in 0..count {
                let message = server.receive().await?;
                server.channel.post(message.source(), &message)?;
            }
            server.close().await
        };
        let ask = async {
            for number in 0..count {
                client.channel.post(peer, &number.to_le_bytes())?;
                assert_eq!(client.receive().await?[..], number.to_le_bytes());
            }
            client.close().await
        };
        let start = Instant::now();
        let both = async { tokio::try_join!(serve, ask) };
        // Far longer than it takes: this is for the test that runs it.
        tokio::time::timeout(Duration::from_secs(60), both)
            .await
            .map_err(|_| "nothing happens any more")??;
        Ok(start.elapsed())
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().map_or(Ok(1000), |word| word.parse())?;
    let faults = arguments.next().unwrap_or_else(|| "loss=20%".to_owned());
    println!("{count} messages answered in {:?}, with {faults}", run(count, &faults)?);
    Ok(())
}
