//! The benchmarks of `bench/`, built with an MPI's own compiler.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tsumugi_lab::mpi::{self, JobError, Mpi};

/// The sources, so that the command needs no checkout.
const SOURCES: [(&str, &str); 16] = [
    ("Makefile", include_str!("../../../../../bench/Makefile")),
    ("bandwidth.c", include_str!("../../../../../bench/bandwidth.c")),
    ("collectives.c", include_str!("../../../../../bench/collectives.c")),
    ("common.c", include_str!("../../../../../bench/common.c")),
    ("common.h", include_str!("../../../../../bench/common.h")),
    ("is.c", include_str!("../../../../../bench/is.c")),
    ("is_classes.h", include_str!("../../../../../bench/is_classes.h")),
    ("latency.c", include_str!("../../../../../bench/latency.c")),
    ("message_rate.c", include_str!("../../../../../bench/message_rate.c")),
    ("options.c", include_str!("../../../../../bench/options.c")),
    ("options.h", include_str!("../../../../../bench/options.h")),
    ("overlap.c", include_str!("../../../../../bench/overlap.c")),
    ("udp.c", include_str!("../../../../../bench/udp.c")),
    ("udp.h", include_str!("../../../../../bench/udp.h")),
    ("window.c", include_str!("../../../../../bench/window.c")),
    ("window.h", include_str!("../../../../../bench/window.h")),
];

/// Why there are no benchmarks.
#[derive(Debug, thiserror::Error)]
pub(in crate::eval) enum BuildError {
    #[error(transparent)]
    Mpi(#[from] JobError),
    #[error("building the benchmarks in {}: {why}; it takes make and a C compiler (`apt install make gcc libc6-dev`)", folder.display())]
    Failed { folder: PathBuf, why: String },
}

/// The benchmarks; removed when dropped.
pub(in crate::eval) struct Programs {
    folder: PathBuf,
    /// The folder with the programs of the MPI.
    pub(in crate::eval) mpi: PathBuf,
}

impl Programs {
    pub(in crate::eval) fn build(mpi: Mpi) -> Result<Programs, BuildError> {
        let programs = mpi::installed(mpi, |doing| eprintln!("tsumugi: {doing}"))?;
        // Beside the MPI, where every node of a lab sees it.
        let folder = programs.with_file_name(format!("bench-{}", std::process::id()));
        let made = Programs { folder: folder.clone(), mpi: programs };
        made.make().map_err(|why| BuildError::Failed { folder, why })?;
        Ok(made)
    }

    fn make(&self) -> Result<(), String> {
        fs::create_dir_all(&self.folder).map_err(|error| error.to_string())?;
        for (name, text) in SOURCES {
            fs::write(self.folder.join(name), text).map_err(|error| error.to_string())?;
        }
        let mut make = Command::new("make");
        make.args(["-s", "-j2", "OUT=.", "-C"]).arg(&self.folder);
        make.arg(format!("CC={}", self.mpi.join("mpicc").display()));
        let output = make.output().map_err(|error| format!("cannot run make: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(said.lines().next().unwrap_or_default().to_owned()) }
    }

    pub(in crate::eval) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
