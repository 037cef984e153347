//! The MPIs of a host.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whose an MPI is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum Vendor {
    /// MPICH, and what is built on it.
    #[strum(to_string = "MPICH")]
    Mpich,
    /// Open MPI.
    #[strum(to_string = "Open MPI")]
    OpenMpi,
    /// Intel MPI.
    #[strum(to_string = "Intel MPI")]
    Intel,
}

/// An MPI that is installed.
#[derive(Clone, Debug)]
pub struct Installation {
    /// Whose it is.
    pub vendor: Vendor,
    /// Its version, as it says itself.
    pub version: String,
    /// Its launcher.
    pub mpiexec: PathBuf,
    /// Whether it is built for libfabric.
    pub uses_libfabric: bool,
    /// What it is built for, in its own words.
    pub device: String,
}

/// Why a program is not the launcher of an MPI that we know.
#[derive(Debug, thiserror::Error)]
pub enum UnknownMpi {
    /// It does not run.
    #[error("cannot run `{} --version`: {why}", mpiexec.display())]
    NotRun {
        /// The program.
        mpiexec: PathBuf,
        /// What stands in the way.
        why: std::io::Error,
    },
    /// It says nothing that is known.
    #[error(
        "{} is the launcher of no MPI that is known here (MPICH, Open MPI, Intel MPI): `{} --version` says `{said}`",
        mpiexec.display(), mpiexec.display()
    )]
    Unknown {
        /// The program.
        mpiexec: PathBuf,
        /// Its first line.
        said: String,
    },
}

impl Installation {
    /// The MPI that has this launcher.
    ///
    /// # Errors
    /// [`UnknownMpi`]
    pub fn of(mpiexec: &Path) -> Result<Installation, UnknownMpi> {
        let said = ask(mpiexec, &["--version"])
            .map_err(|why| UnknownMpi::NotRun { mpiexec: mpiexec.to_owned(), why })?;
        let Some((vendor, version)) = vendor_of(&said) else {
            let said = said.lines().next().unwrap_or_default().to_owned();
            return Err(UnknownMpi::Unknown { mpiexec: mpiexec.to_owned(), said });
        };
        let beside = |name: &str| mpiexec.with_file_name(name);
        let device = match vendor {
            Vendor::Mpich => mpich_device(&ask(&beside("mpichversion"), &[]).unwrap_or_default())
                .or_else(|| mpich_device(&said)),
            Vendor::OpenMpi => {
                ask(&beside("ompi_info"), &["--parsable"]).ok().map(|all| open_mpi_device(&all))
            }
            Vendor::Intel => Some("ofi".to_owned()),
        };
        let device = device.unwrap_or_default();
        // One that does not say is given a chance.
        let uses_libfabric = device.is_empty() || uses_libfabric(vendor, &device);
        Ok(Installation { vendor, version, mpiexec: mpiexec.to_owned(), uses_libfabric, device })
    }

    /// The libfabric that it brings along, or else the system's by its name.
    #[must_use]
    pub fn libfabric(&self) -> PathBuf {
        const NAME: &str = "libfabric.so.1";
        let prefix = self.mpiexec.canonicalize().ok();
        let prefix = prefix.as_deref().and_then(Path::parent).and_then(Path::parent);
        let folders = ["lib", "lib64", "lib/mpich", "lib/openmpi", "libfabric/lib", "opt/mpi/libfabric/lib"];
        // Not the system's own folders: there it is found by its name.
        let prefix = prefix.filter(|prefix| *prefix != Path::new("/usr"));
        let files =
            prefix.into_iter().flat_map(|prefix| folders.map(|folder| prefix.join(folder).join(NAME)));
        files.into_iter().find(|file| file.exists()).unwrap_or_else(|| PathBuf::from(NAME))
    }
}

/// The launchers of MPIs that this host has: beside this program (in the same virtual environment), where `PATH` leads, and in
/// the folder that Intel's environment names. Each once.
#[must_use]
pub fn launchers() -> Vec<PathBuf> {
    let own = env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned));
    let intel = env::var_os("I_MPI_ROOT").map(|root| Path::new(&root).join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    // Debian installs several beside each other, and calls the one that was chosen `mpiexec`.
    let names = ["mpiexec", "mpiexec.mpich", "mpiexec.openmpi", "mpiexec.hydra"];
    let folders = own.into_iter().chain(env::split_paths(&path)).chain(intel);
    let files = folders.flat_map(|folder| names.map(|name| folder.join(name)));
    let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
    for file in files {
        let Ok(real) = fs::canonicalize(&file) else { continue };
        if found.iter().all(|(_, known)| *known != real) {
            found.push((file, real));
        }
    }
    found.into_iter().map(|(file, _)| file).collect()
}

/// What a program of an MPI prints.
fn ask(program: &Path, arguments: &[&str]) -> std::io::Result<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Whose it is and which version, by what its launcher says of itself.
fn vendor_of(said: &str) -> Option<(Vendor, String)> {
    let after = |text: &str, mark: &str| {
        let rest = &text[text.find(mark)? + mark.len()..];
        Some(rest.split_whitespace().next().unwrap_or_default().trim_end_matches(',').to_owned())
    };
    if let Some(version) = after(said, "(Open MPI)").or_else(|| after(said, "(OpenRTE)")) {
        return Some((Vendor::OpenMpi, version));
    }
    if said.contains("Intel(R) MPI") {
        return Some((Vendor::Intel, after(said, "Version").unwrap_or_default()));
    }
    if said.contains("HYDRA") || said.contains("MPICH") {
        return Some((Vendor::Mpich, after(said, "Version:").unwrap_or_default()));
    }
    None
}

/// What MPICH is built for, in what `mpichversion` or its launcher prints: `ch4:ucx,ofi`.
fn mpich_device(said: &str) -> Option<String> {
    let device = said.lines().find_map(|line| line.strip_prefix("MPICH Device:"));
    let configured = || {
        let rest = said.split("--with-device=").nth(1)?;
        rest.split(['\'', ' ', '\n']).next()
    };
    device.or_else(configured).map(|device| device.trim().replace(' ', ","))
}

/// What Open MPI has for messages between nodes: the components of its layers.
fn open_mpi_device(said: &str) -> String {
    let components = said.lines().filter_map(|line| line.strip_prefix("mca:"));
    let mut names: Vec<String> = components
        .filter_map(|line| {
            let mut words = line.split(':');
            let (layer, name) = (words.next()?, words.next()?);
            matches!(layer, "mtl" | "btl" | "pml").then(|| format!("{layer}/{name}"))
        })
        .collect();
    names.dedup();
    names.join(",")
}

fn uses_libfabric(vendor: Vendor, device: &str) -> bool {
    match vendor {
        // Its own default among the network modules is libfabric's.
        Vendor::Mpich => device.contains("ofi") || device == "ch4",
        Vendor::OpenMpi => device.split(',').any(|name| name == "mtl/ofi"),
        Vendor::Intel => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_say_whose_they_are() {
        let hydra = "HYDRA build details:\n    Version:                                 5.0.2\n";
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 20260101";
        let vendors = [hydra, "mpiexec (Open MPI) 5.0.11\n", "mpirun (Open MPI) 4.1.4", intel].map(vendor_of);
        let expected = [
            (Vendor::Mpich, "5.0.2"),
            (Vendor::OpenMpi, "5.0.11"),
            (Vendor::OpenMpi, "4.1.4"),
            (Vendor::Intel, "2021.18"),
        ];
        assert_eq!(vendors, expected.map(|(vendor, version)| Some((vendor, version.to_owned()))));
        assert_eq!(vendor_of("srun: slurm 23"), None);
    }

    #[test]
    fn what_an_mpi_is_built_for_is_in_its_words() {
        let version = "MPICH Version:      5.0.2\nMPICH Device: \tch4:ucx ofi\n";
        assert_eq!(mpich_device(version).as_deref(), Some("ch4:ucx,ofi"));
        let debian = "    Configure options: '--disable-option-checking' '--with-device=ch4:ucx' '--x'";
        assert_eq!(mpich_device(debian).as_deref(), Some("ch4:ucx"));
        let open = "mca:btl:ofi:version:\"mca:2.1.0\"\nmca:btl:ofi:version:\"x\"\nmca:mtl:ofi:version:\"y\"\nmca:coll:han:z\n";
        assert_eq!(open_mpi_device(open), "btl/ofi,mtl/ofi");
        let uses = [("ch4:ucx,ofi", true), ("ch4:ucx", false), ("ch4", true), ("ch3:nemesis", false)];
        for (device, is) in uses {
            assert_eq!(uses_libfabric(Vendor::Mpich, device), is, "{device}");
        }
        assert!(!uses_libfabric(Vendor::OpenMpi, "btl/ofi,pml/ob1"));
    }
}
