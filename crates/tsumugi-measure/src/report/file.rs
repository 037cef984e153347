//! The file that a report is written to.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use thiserror::Error;

/// A report that cannot be written.
#[derive(Debug, Error)]
#[error("cannot write {path}: {cause}", path = path.display())]
pub(crate) struct WriteError {
    path: PathBuf,
    cause: io::Error,
}

impl WriteError {
    /// Says so; the exit code of a command that was given such a file.
    pub(crate) fn wrong_usage(&self) -> ExitCode {
        eprintln!("tsumugi: {self}");
        ExitCode::from(2)
    }
}

/// A file that could be written when it was last tried.
pub(crate) struct ReportFile(PathBuf);

impl ReportFile {
    /// Finds out whether the file can be written now, and not after minutes of measuring. What is in it stays until then.
    pub(crate) fn probe(path: Option<&Path>) -> Result<Option<ReportFile>, WriteError> {
        let Some(path) = path else { return Ok(None) };
        match OpenOptions::new().create(true).append(true).open(path) {
            Ok(_) => Ok(Some(ReportFile(path.to_owned()))),
            Err(cause) => Err(WriteError { path: path.to_owned(), cause }),
        }
    }

    /// Writes the page, and says where.
    pub(crate) fn write(&self, page: &str) -> Result<(), WriteError> {
        std::fs::write(&self.0, page).map_err(|cause| WriteError { path: self.0.clone(), cause })?;
        eprintln!("report written to {}", self.0.display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_keeps_what_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("report.html");
        std::fs::write(&path, "before").expect("written");
        let file = ReportFile::probe(Some(&path)).expect("it can be written").expect("a file");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "before");
        file.write("after").expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "after");
        let error =
            ReportFile::probe(Some(&folder.path().join("no/report.html"))).err().expect("no such folder");
        assert!(error.to_string().contains("no/report.html"), "{error}");
        assert!(ReportFile::probe(None).expect("nothing is asked for").is_none());
    }
}
