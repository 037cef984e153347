//! What the user who asks can use here, found by opening an endpoint as he would.

use super::{ATTACHED, Finding, MEMLOCK, OPEN_FILES, Verdict};
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setuid};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use serde::Serialize;
use std::ffi::CString;
use tsumugi::{Config, Endpoint, ReceiveChoice};
use tsumugi_measure::report::columns::Columns;

/// Every send path, by the name that reports give it.
const SEND_PATHS: [&str; 3] = ["udp", "packet", "xsk"];

/// Why nobody else's view can be shown.
#[derive(Debug, thiserror::Error)]
pub(super) enum UserError {
    #[error("there is no user '{0}' here")]
    NoSuch(String),
    #[error("only root can ask for another user: `sudo tsumugi doctor --user {0}`")]
    NotRoot(String),
    #[error("becoming {user}: {cause}")]
    Refused { user: String, cause: nix::Error },
}

/// Becomes a user, with his groups and without privileges, for the rest of this process.
pub(super) fn become_user(name: &str) -> Result<(), UserError> {
    if !Uid::effective().is_root() {
        return Err(UserError::NotRoot(name.to_owned()));
    }
    let found = match name.parse() {
        Ok(number) => User::from_uid(Uid::from_raw(number)),
        Err(_) => User::from_name(name),
    };
    let user = found.ok().flatten().ok_or_else(|| UserError::NoSuch(name.to_owned()))?;
    let become_him = || {
        initgroups(&CString::new(user.name.as_str()).unwrap_or_default(), user.gid)?;
        setgid(user.gid)?;
        setuid(user.uid)
    };
    become_him().map_err(|cause| UserError::Refused { user: name.to_owned(), cause })?;
    // What the kernel shows a process of itself is root's otherwise.
    let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
    Ok(())
}

/// Something that a user can use, or cannot.
#[derive(Debug, Serialize)]
struct Offer {
    what: String,
    usable: bool,
    /// Which, or why not.
    #[serde(skip_serializing_if = "String::is_empty")]
    found: String,
    /// What mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
}

/// What the user who asks can use here.
#[derive(Debug, Serialize)]
pub(super) struct CanUse {
    user: String,
    offers: Vec<Offer>,
}

impl CanUse {
    /// Finds it, beside what the checks have found.
    pub(super) fn new(findings: &[Finding]) -> CanUse {
        let mut offers = Vec::new();
        // By its sockets, because an endpoint of the pool would begin anew for it.
        match Endpoint::open(Config::default().port(0).receive(ReceiveChoice::Socket)) {
            Ok(endpoint) => {
                let report = endpoint.report();
                offers.push(Offer::usable("receive path socket", String::new()));
                offers.extend(
                    findings.iter().filter(|it| it.check == ATTACHED).map(|it| it.offer("receive path xdp")),
                );
                for path in SEND_PATHS {
                    let what = format!("send path {path}");
                    if report.send_paths.iter().any(|it| it == path) {
                        offers.push(Offer::usable(&what, String::new()));
                    } else if let Some(lack) = report.given_up.iter().find(|it| it.what.contains(path)) {
                        offers.push(Offer::refused(&what, &lack.why, &lack.remedy));
                    }
                }
                let others = report.given_up.iter().filter(|it| !it.what.ends_with("path"));
                offers.extend(others.map(|it| Offer::refused(&it.what, &it.why, &it.remedy)));
            }
            Err(error) => offers.push(Offer::refused("endpoints", &error.to_string(), "see 'missing' below")),
        }
        offers.extend(findings.iter().filter(|it| it.check == super::mpi::CHECK).map(|it| it.offer("MPI")));
        let limits = findings.iter().filter(|it| [MEMLOCK, OPEN_FILES].contains(&it.check));
        offers.extend(limits.filter(|it| it.verdict != Verdict::Ok).map(|it| it.offer(it.check)));
        CanUse { user: user(), offers }
    }

    pub(super) fn table(&self) -> String {
        let mut columns = Columns::of_words();
        for Offer { what, usable, found, action } in &self.offers {
            let action = action.as_ref().map_or_else(String::new, |action| format!("  → {action}"));
            let usable = if *usable { "yes" } else { "no" };
            columns.row(vec![usable.to_owned(), what.clone(), format!("{found}{action}")]);
        }
        let whom = if Uid::effective().is_root() {
            ""
        } else {
            " (→ mends the rest; ask root for what only root may)"
        };
        format!("What {} can use here{whom}\n{columns}\n", self.user)
    }
}

impl Offer {
    fn usable(what: &str, found: String) -> Offer {
        Offer { what: what.to_owned(), usable: true, found, action: None }
    }

    fn refused(what: &str, why: &str, remedy: &str) -> Offer {
        Offer { what: what.to_owned(), usable: false, found: why.to_owned(), action: Some(remedy.to_owned()) }
    }
}

impl Finding {
    fn offer(&self, what: &str) -> Offer {
        let usable = self.verdict == Verdict::Ok;
        Offer { what: what.to_owned(), usable, found: self.found.clone(), action: self.action.clone() }
    }
}

/// Who asks, as he is called here.
pub(super) fn user() -> String {
    let (uid, gid) = (Uid::effective(), Gid::effective());
    match User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => format!("user {uid} (group {gid})"),
    }
}
