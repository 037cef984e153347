//! `tsumugi doctor`: what this machine can do, what is missing, and the command that mends it.

use clap::Args;
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use tsumugi_measure::report::columns::Columns;
use user::CanUse;

mod checks;
mod mpi;
mod paths;
mod probe;
mod taint;
mod user;

/// Options of this command.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Say which addresses of this host are used, and which paths lead to an endpoint there, and why not others. HOST is
    /// a name or address, with a port if it is not 7411, where any program has an endpoint.
    #[arg(long, value_name = "HOST")]
    paths: Option<String>,
    /// Say what this user can use, by name or number, whose PATH and limits are those of the caller (root).
    #[arg(long, value_name = "NAME", conflicts_with = "paths")]
    user: Option<String>,
}

const HELP: &str = "\
First comes what the user who asks can use, and what mends the rest. Everything is tried, not looked up, where that is \
possible without changing the machine. Root also makes and removes a lab of one node.

Exit code: 0 if everything that the socket receive path needs is there, which is what every program uses that has no \
privileges; 1 otherwise. What is missing for a lab or for the XDP receive path does not change it.";

/// Which part of Tsumugi asks for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Part {
    /// The library over ordinary UDP sockets.
    Socket,
    /// The XDP program.
    Xdp,
    /// MPI programs.
    Mpi,
    /// `tsumugi lab`.
    Lab,
    /// Believable figures.
    Measuring,
}

/// The check that finds what the user who asks can have of the XDP receive path.
const ATTACHED: &str = "attached";
/// The checks of what he may have at most.
const MEMLOCK: &str = "locked memory";
const OPEN_FILES: &str = "open files";

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// As it should be.
    Ok,
    /// Works, but could be better, or is worth knowing.
    Note,
    /// The part does not work without it.
    Missing,
}

/// The result of one check.
#[derive(Debug, Clone, Serialize)]
struct Finding {
    part: Part,
    check: &'static str,
    verdict: Verdict,
    found: String,
    /// What mends it: a command wherever there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
}

impl Finding {
    fn ok(part: Part, check: &'static str, found: impl Into<String>) -> Finding {
        Finding { part, check, verdict: Verdict::Ok, found: found.into(), action: None }
    }

    fn note(part: Part, check: &'static str, found: impl Into<String>, action: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::Note, action: Some(action.into()), ..Finding::ok(part, check, found) }
    }

    fn missing(
        part: Part,
        check: &'static str,
        found: impl Into<String>,
        action: impl Into<String>,
    ) -> Finding {
        Finding { verdict: Verdict::Missing, ..Finding::note(part, check, found, action) }
    }
}

/// The answer of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    /// Whether the socket receive path has all it needs.
    ok: bool,
    /// What the user who asks can use.
    can_use: CanUse,
    findings: &'a [Finding],
}

pub(crate) fn run(arguments: Arguments) -> tsumugi_measure::CommandResult {
    if let Some(host) = &arguments.paths {
        return paths::run(host, arguments.json);
    }
    if let Some(name) = &arguments.user {
        user::become_user(name)?;
    }
    let findings = checks::all();
    let ok = usable(&findings);
    let can_use = CanUse::new(&findings);
    let mut out = tsumugi_measure::output::output();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&Report { ok, can_use, findings: &findings })?)?;
    } else {
        out.write_all(can_use.table().as_bytes())?;
        out.write_all(table(&findings).as_bytes())?;
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn usable(findings: &[Finding]) -> bool {
    !findings.iter().any(|finding| finding.part == Part::Socket && finding.verdict == Verdict::Missing)
}

/// One paragraph per part.
fn table(findings: &[Finding]) -> String {
    let mut text = String::new();
    for (part, title) in [
        (Part::Socket, "Socket receive path: any program, without privileges"),
        (Part::Xdp, "XDP receive path"),
        (Part::Mpi, "MPI programs"),
        (Part::Lab, "Lab: a cluster on this machine"),
        (Part::Measuring, "Measuring"),
    ] {
        _ = writeln!(text, "{title}");
        let mut columns = Columns::of_words();
        for finding in findings.iter().filter(|finding| finding.part == part) {
            let verdict = match finding.verdict {
                Verdict::Ok => "ok",
                Verdict::Note => "note",
                Verdict::Missing => "missing",
            };
            let action = finding.action.as_ref().map_or_else(String::new, |action| format!("  → {action}"));
            // What is found may be long, and actions would be far away in a column of their own.
            let found = format!("{}{action}", finding.found);
            columns.row(vec![verdict.to_owned(), finding.check.to_string(), found]);
        }
        _ = writeln!(text, "{columns}");
    }
    let verdict = if usable(findings) {
        "The socket receive path has all it needs."
    } else {
        "The socket receive path does not work here: see 'missing' above."
    };
    text + verdict + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_socket_receive_path_decides() {
        let fine = Finding::ok(Part::Socket, "udp", "works");
        let no_xdp = Finding::missing(Part::Xdp, "bpf", "not permitted", "sudo tsumugi doctor");
        let no_udp = Finding::missing(Part::Socket, "udp", "not permitted", "allow sockets");
        assert!(usable(&[fine.clone(), no_xdp.clone()]));
        assert!(!usable(&[fine.clone(), no_udp]));
        let text = table(&[fine, no_xdp]);
        assert!(text.contains("  missing  bpf  not permitted  → sudo tsumugi doctor\n"), "{text}");
        assert!(text.ends_with("has all it needs.\n"));
    }
}
