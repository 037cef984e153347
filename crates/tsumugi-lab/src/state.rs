//! The record of a lab, and the lock under which labs are made and removed.

use crate::error::{Context, LabError};
use crate::names;
use crate::spec::{Spec, Wire};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const FORMAT: u32 = 1;
const FILE: &str = "state.json";

/// Written before the first namespace is made and again when everything stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) format: u32,
    pub(crate) complete: bool,
    pub(crate) spec: Spec,
    /// The wire that was really made.
    pub(crate) wire: Wire,
}

impl State {
    pub(crate) fn begun(spec: &Spec) -> State {
        State { format: FORMAT, complete: false, spec: spec.clone(), wire: spec.wire_wanted() }
    }

    /// Replaces the record at once: a reader sees the old one or the new one, never a part.
    pub(crate) fn write(&self) -> Result<(), LabError> {
        let folder = names::folder(&self.spec.name);
        let (scratch, path) = (folder.join("state.json.new"), folder.join(FILE));
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from).context("write", &path)?;
        fs::write(&scratch, text).context("write", &scratch)?;
        fs::rename(&scratch, &path).context("replace", &path)
    }

    /// The record of a complete lab.
    pub(crate) fn read(lab: &str) -> Result<State, LabError> {
        let half_made = |reason: String| LabError::HalfMade { name: lab.to_owned(), reason };
        let known = names::labs();
        if !known.iter().any(|name| name == lab) {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(LabError::NotFound { name: lab.to_owned(), known });
        }
        let path = names::folder(lab).join(FILE);
        let text = fs::read(&path).map_err(|error| half_made(format!("no {}: {error}", path.display())))?;
        let state: State = serde_json::from_slice(&text)
            .map_err(|error| half_made(format!("{} is unreadable: {error}", path.display())))?;
        if state.format != FORMAT || state.spec.name != lab {
            return Err(half_made(format!("{} is another program's", path.display())));
        }
        if !state.complete {
            return Err(half_made("its making was interrupted".to_owned()));
        }
        Ok(state)
    }
}

/// Only one process makes or removes labs at a time. The lock is on the folder of all labs, is inherited
/// by the programs that are called, and so is free only when all of them have ended.
pub(crate) struct Lock {
    pub(crate) file: File,
}

impl Lock {
    pub(crate) fn take() -> Result<Lock, LabError> {
        loop {
            let file = match File::open(names::ROOT) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    match fs::create_dir_all(names::ROOT) {
                        // Another process has just removed it, or the folder that it lies in.
                        Err(error)
                            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::AlreadyExists) => {}
                        made => made.context("make the folder", names::ROOT)?,
                    }
                    continue;
                }
                opened => opened.context("open", names::ROOT)?,
            };
            file.lock().context("lock", names::ROOT)?;
            let ours = file.metadata().context("look at", names::ROOT)?;
            // While we waited, the folder may have been removed, and its lock with it.
            if fs::metadata(names::ROOT).is_ok_and(|now| (now.dev(), now.ino()) == (ours.dev(), ours.ino())) {
                return Ok(Lock { file });
            }
        }
    }

    /// Lets go, and leaves no folder behind if this was the last lab.
    pub(crate) fn release(self) {
        // Both fail, rightly, while there is something in them.
        if fs::remove_dir(names::ROOT).is_ok()
            && let Some(parent) = Path::new(names::ROOT).parent()
        {
            let _ = fs::remove_dir(parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::as_root;

    #[test]
    fn the_folder_may_go_while_another_process_makes_it() {
        let Some(_watched) = as_root("the_folder_may_go_while_another_process_makes_it", None) else {
            return;
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| Lock::take().expect("the lock").release()));
            }
        });
    }
}
