//! What an endpoint that the caller opens here and now uses beside the XDP receive path, and does without.

use serde::Serialize;
use std::fmt::Write as _;

/// What came of opening one.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Here {
    Report(tsumugi::Report),
    Error(String),
}

impl Here {
    /// By its sockets, because an endpoint of the pool would begin anew for it.
    pub(super) fn tried() -> Here {
        let config = tsumugi::Config::default().port(0).receive(tsumugi::ReceiveChoice::Socket);
        match tsumugi::Endpoint::open(config) {
            Ok(endpoint) => Here::Report(endpoint.report()),
            Err(error) => Here::Error(error.to_string()),
        }
    }

    pub(super) fn lines(&self) -> String {
        let report = match self {
            Here::Report(report) => report,
            Here::Error(error) => return format!("No endpoint opens here: {error}\n"),
        };
        let mut nics: Vec<&str> = Vec::new();
        for nic in &report.nics {
            if !nics.contains(&&*nic.name) {
                nics.push(&nic.name); // once, though it may have addresses of both families
            }
        }
        let nics = if nics.is_empty() { "loopback only".to_owned() } else { nics.join(" ") };
        let mut lines = format!(
            "Endpoints of yours send by {}, and are reached by {nics}\n",
            report.send_paths.join(", ")
        );
        for nic in &report.links_down {
            _ = writeln!(lines, "  no link on {nic}: it is off or has no carrier; see `ip link show {nic}`");
        }
        for lack in &report.given_up {
            _ = writeln!(lines, "  without {}: {}; {}", lack.what, lack.why, lack.remedy);
        }
        lines
    }
}
