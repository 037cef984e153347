//! Endpoints as futures, under tokio: a server and a client in one thread, while packets are lost.
//!
//! ```text
//! event_loop [COUNT] [FAULTS]        for example: event_loop 1000 loss=20%
//! ```
//!
//! The library's futures have tokio watch the endpoint's descriptor, which is readable when something has arrived and when
//! one of the endpoint's timers is due. So there is no time-out to choose, and no thread beside the runtime's.

use std::error::Error;
use std::time::{Duration, Instant};
use tsumugi::{Config, Endpoint};

const CHANNEL: u16 = 1;

/// Has so many messages answered, one after the other; returns how long that took.
pub(crate) fn run(count: u64, faults: &str) -> Result<Duration, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = Config::loopback().faults(Some(faults.parse()?));
    runtime.block_on(async {
        let server = Endpoint::open(config.clone())?;
        let client = Endpoint::open(config)?;
        let peer = client.add_peer(server.address())?;
        let serve = async {
            let channel = server.channel(CHANNEL)?;
            for _ in 0..count {
                let message = channel.receive_async().await?;
                channel.send_async(message.source(), &message).await?;
            }
            drop(channel);
            Ok::<_, Box<dyn Error>>(server.close_async().await?)
        };
        let ask = async {
            let channel = client.channel(CHANNEL)?;
            for number in 0..count {
                channel.send_async(peer, &number.to_le_bytes()).await?;
                assert_eq!(channel.receive_async().await?[..], number.to_le_bytes());
            }
            drop(channel);
            Ok::<_, Box<dyn Error>>(client.close_async().await?)
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
