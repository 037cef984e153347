//! Our libfabric provider as a file, and the PMPI library beside it.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tsumugi_wire::limits::VERSION_MARK;

/// What the file is called: libfabric takes no other name.
pub const FILE: &str = "libtsumugi-fi.so";
/// The PMPI library, which does programs' collectives.
pub const COLLECTIVES: &str = "libtsumugi-pmpi.so";
/// The variable that names the folder to libfabric.
pub const PATH: &str = "FI_PROVIDER_PATH";

/// What cargo calls what it builds of a file.
fn built_as(file: &str) -> String {
    file.replace('-', "_")
}

/// Why there is no provider.
#[derive(Debug, thiserror::Error)]
pub enum NoProvider {
    /// It is in none of the folders where it may be.
    #[error(
        "the provider {FILE} is in none of {}; install Tsumugi (its wheel beside the MPI, its package, or `make install`), or name the \
         folder in {PATH}",
        list(.0)
    )]
    Nowhere(Vec<PathBuf>),
    /// A folder that was named has none.
    #[error("there is no {FILE} in {}, which {PATH} names", .0.display())]
    NotWhereNamed(PathBuf),
    /// The PMPI library is in none of the folders where it may be.
    #[error("{COLLECTIVES} is in none of {}; install Tsumugi as a whole, of this version", list(.0))]
    NoCollectives(Vec<PathBuf>),
    /// What was built cannot be given the name that libfabric wants.
    #[error("linking the provider in {}: {cause}", folder.display())]
    NotLinked {
        /// Where it was to be.
        folder: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

fn list(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The folder with the provider: the one that the environment names, or one that was installed or built with this program.
///
/// # Errors
/// [`NoProvider`]
pub fn folder() -> Result<PathBuf, NoProvider> {
    if let Some(named) = env::var_os(PATH).filter(|named| !named.is_empty()) {
        return named_folder(&named);
    }
    let own = own_folder();
    if let Some(folder) = built(&own, FILE)? {
        return Ok(folder);
    }
    let places = installed(&own);
    match places.iter().find(|place| place.join(FILE).exists()) {
        Some(place) => Ok(place.clone()),
        None => Err(NoProvider::Nowhere(places)),
    }
}

/// The PMPI library: in a folder that the environment names for the provider, or installed or built with this program.
///
/// # Errors
/// [`NoProvider`]
pub fn collectives() -> Result<PathBuf, NoProvider> {
    let own = own_folder();
    let named = env::var_os(PATH).unwrap_or_default();
    let mut places: Vec<PathBuf> =
        env::split_paths(&named).filter(|folder| !folder.as_os_str().is_empty()).collect();
    if let Some(file) = places.iter().map(|folder| folder.join(COLLECTIVES)).find(|file| file.exists()) {
        return Ok(file);
    }
    if let Some(folder) = built(&own, COLLECTIVES)? {
        return Ok(folder.join(COLLECTIVES));
    }
    places.extend(installed(&own));
    let found = places.iter().map(|place| place.join(COLLECTIVES)).find(|file| file.exists());
    found.ok_or(NoProvider::NoCollectives(places))
}

/// Where this program is.
fn own_folder() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    program.parent().unwrap_or(Path::new("")).to_owned()
}

/// The folders where it may be installed for a program that is there.
fn installed(own: &Path) -> Vec<PathBuf> {
    let beside = own.parent().map(|prefix| prefix.join("lib/tsumugi"));
    beside.into_iter().chain(["/usr/local/lib/tsumugi", "/usr/lib/tsumugi"].map(PathBuf::from)).collect()
}

/// The one of these folders, with `:` between them, that has the provider.
fn named_folder(named: &OsString) -> Result<PathBuf, NoProvider> {
    let mut folders = env::split_paths(named);
    let has = |folder: &PathBuf| folder.join(FILE).exists();
    folders.find(has).ok_or_else(|| NoProvider::NotWhereNamed(named.into()))
}

/// A folder for a file that cargo has built beside a program: a link of the name that it has when it is installed.
fn built(own: &Path, name: &str) -> Result<Option<PathBuf>, NoProvider> {
    // Cargo leaves it in the second one where it was built for tests; the first may then be an older one.
    let places = ["", "deps"].map(|folder| own.join(folder).join(built_as(name)));
    let made = |place: &&PathBuf| fs::metadata(place).and_then(|file| file.modified()).ok();
    let Some(file) = places.iter().filter(|place| place.exists()).max_by_key(made) else { return Ok(None) };
    let folder = own.join("libfabric");
    let link = folder.join(name);
    let make = || {
        fs::create_dir_all(&folder)?;
        if fs::read_link(&link).ok().as_ref() != Some(file) {
            // At once: other jobs may be looking.
            let scratch = folder.join(format!("link-{}-{name}", std::process::id()));
            let _ = fs::remove_file(&scratch); // of one that was killed
            symlink(file, &scratch)?;
            fs::rename(&scratch, &link)?;
        }
        Ok(())
    };
    match make() {
        Ok(()) => Ok(Some(folder)),
        Err(cause) => Err(NoProvider::NotLinked { folder, cause }),
    }
}

/// The version of the protocol that a provider speaks, which is written in it; `None` in what is no provider of ours.
///
/// # Errors
/// The file cannot be read.
pub fn protocol_of(file: &Path) -> io::Result<Option<u32>> {
    let bytes = fs::read(file)?;
    let mark = VERSION_MARK.as_bytes();
    let mut marks = bytes.windows(mark.len()).enumerate().filter(|(_, bytes)| *bytes == mark);
    let version = |at: usize| {
        let digits = bytes[at + mark.len()..].iter().take_while(|byte| byte.is_ascii_digit());
        String::from_utf8(digits.copied().collect()).ok()?.parse().ok()
    };
    Ok(marks.find_map(|(at, _)| version(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        // The words without a number are in every program that looks for them.
        fs::write(&file, b"\x7fELF tsumugi wire protocol [0-9]* \0tsumugi wire protocol 12\0 and more")
            .unwrap();
        assert_eq!(protocol_of(&file).unwrap(), Some(12));
        fs::write(&file, b"\x7fELF something else").unwrap();
        assert_eq!(protocol_of(&file).unwrap(), None);
        assert!(protocol_of(&folder.path().join("none")).is_err());
    }

    #[test]
    fn what_cargo_built_gets_the_name_that_libfabric_takes() {
        let own = tempfile::tempdir().unwrap();
        for (name, built_as) in [(FILE, "libtsumugi_fi.so"), (COLLECTIVES, "libtsumugi_pmpi.so")] {
            assert_eq!(built(own.path(), name).unwrap(), None);
            fs::write(own.path().join(built_as), name).unwrap();
            let folder = built(own.path(), name).unwrap().unwrap();
            assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), name);
            assert_eq!(built(own.path(), name).unwrap(), Some(folder));
        }
    }

    #[test]
    fn a_folder_that_is_named_must_have_it() {
        let [one, two] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let both = env::join_paths([one.path(), two.path()]).unwrap();
        assert!(matches!(named_folder(&both), Err(NoProvider::NotWhereNamed(_))));
        fs::write(two.path().join(FILE), "").unwrap();
        assert_eq!(named_folder(&both).unwrap(), two.path());
    }
}
