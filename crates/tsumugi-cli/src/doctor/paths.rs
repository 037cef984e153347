//! `tsumugi doctor --paths HOST`: which addresses are used, which paths lead to a peer, and why not others.

use serde::Serialize;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;
use tsumugi::remote::{OperationError, WaitError};
use tsumugi::{Config, Endpoint, Networks, PeerId, ReceiveChoice, Wait};
use tsumugi_measure::output;
use tsumugi_measure::report::columns::Columns;
use tsumugi_rail::nics::{self, NicChoice};

/// How long the peer is waited for, and how long its paths have for a proof.
const ANSWER: Duration = Duration::from_secs(5);
const PROOF: Duration = Duration::from_millis(500);

#[derive(Serialize)]
struct Own {
    nic: String,
    address: IpAddr,
    used: bool,
    why: String,
}

#[derive(Serialize)]
struct Path {
    address: String,
    used: bool,
    why: String,
    /// Smoothed round trip.
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_us: Option<f64>,
}

#[derive(Serialize)]
struct Answer<'a> {
    networks: String,
    own: Vec<Own>,
    peer: &'a str,
    paths: Vec<Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub(super) fn run(host: &str, json: bool) -> tsumugi_measure::CommandResult {
    let networks = Networks::from_environment()?;
    let config = Config::default().receive(ReceiveChoice::Socket).wait(Wait::Block);
    let endpoint = Endpoint::open(config.connect_timeout(ANSWER))?;
    let peer = endpoint.add_peer(host)?;
    let own = nics::explain(endpoint.address().ip(), &networks)?;
    let fence = endpoint.remote().fence(peer)?;
    let error = match fence.wait_timeout(ANSWER) {
        Ok(_) => {
            // What it tells of its addresses comes first, and each has to prove that it is the peer.
            endpoint.wait_until(PROOF, || None::<()>)?;
            None
        }
        Err(OperationError::Wait(WaitError::TimedOut(_))) => Some(format!(
            "{host} has not answered for {ANSWER:?}; does an endpoint run there, and is the port right?"
        )),
        Err(error) => Some(why(&endpoint, &error)),
    };
    let answer = Answer {
        networks: networks.to_string(),
        own: own.into_iter().map(said).collect(),
        peer: host,
        paths: paths(&endpoint, peer),
        error,
    };
    if json {
        output::line(serde_json::to_string(&answer)?)?;
    } else {
        output::text(text(&answer))?;
    }
    Ok(if answer.error.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Why there is no answer: what is known of the peer, or else what the question came to.
fn why(endpoint: &Endpoint, error: &dyn std::error::Error) -> String {
    endpoint.take_failure().map_or_else(|| error.to_string(), |failure| failure.to_string())
}

fn said(choice: NicChoice) -> Own {
    let used = choice.unused.is_none();
    let why = choice.unused.unwrap_or_else(|| "peers are told of it".to_owned());
    Own { nic: choice.name, address: choice.ip, used, why }
}

fn paths(endpoint: &Endpoint, peer: PeerId) -> Vec<Path> {
    let reports = endpoint.paths(peer);
    let path = |(address, why): (std::net::SocketAddr, String)| {
        let report = reports.iter().find(|report| report.address == address);
        let used = report.is_some_and(|report| report.is_usable);
        let rtt_us = report.filter(|report| report.srtt_ns > 0).map(|report| report.srtt_ns as f64 / 1e3);
        Path { address: address.to_string(), used, why, rtt_us }
    };
    endpoint.explain(peer).into_iter().map(path).collect()
}

fn text(answer: &Answer<'_>) -> String {
    let mut text = String::from("Addresses of this host\n");
    let mark = |used| if used { "used" } else { "-" }.to_owned();
    let mut columns = Columns::of_words();
    for Own { nic, address, used, why } in &answer.own {
        columns.row(vec![mark(*used), nic.to_string(), address.to_string(), why.clone()]);
    }
    text += &columns.to_string();
    if !answer.networks.is_empty() {
        _ = writeln!(text, "  by the list of networks '{}'", answer.networks);
    }
    _ = writeln!(text, "\nPaths to {}", answer.peer);
    if let Some(error) = &answer.error {
        _ = writeln!(text, "  {error}");
        return text;
    }
    let mut columns = Columns::of_words();
    for Path { address, used, why, rtt_us } in &answer.paths {
        let rtt = rtt_us.map_or_else(String::new, |us| format!(", round trip {us:.0} µs"));
        columns.row(vec![mark(*used), address.clone(), format!("{why}{rtt}")]);
    }
    text + &columns.to_string()
}
