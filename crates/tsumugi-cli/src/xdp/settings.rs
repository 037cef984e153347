//! The file of `tsumugi up --config`.

use serde::{Deserialize, Deserializer, de::Error as _};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use tsumugi_rail::xdp::Mode;

/// What a file says; the names and the meanings are those of the options of `tsumugi up`.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct Settings {
    pub(super) nics: Vec<String>,
    pub(super) port: Option<u16>,
    pub(super) endpoints: Option<u16>,
    pub(super) flows: Option<u32>,
    pub(super) queue: Option<u64>,
    pub(super) window: Option<u64>,
    pub(super) translations: Option<u32>,
    pub(super) owner: Option<String>,
    pub(super) group: Option<String>,
    #[serde(deserialize_with = "octal")]
    pub(super) mode: Option<u32>,
    #[serde(deserialize_with = "word")]
    pub(super) xdp: Option<Mode>,
    pub(super) busy_poll: bool,
}

/// Why a file is not followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum SettingsError {
    #[error("cannot read {}: {cause}", file.display())]
    Unreadable { file: PathBuf, cause: io::Error },
    #[error("{}: {cause}", file.display())]
    Wrong { file: PathBuf, cause: toml::de::Error },
}

impl Settings {
    pub(super) fn read(file: &Path) -> Result<Settings, SettingsError> {
        let text = fs::read_to_string(file)
            .map_err(|cause| SettingsError::Unreadable { file: file.to_owned(), cause })?;
        toml::from_str(&text).map_err(|cause| SettingsError::Wrong { file: file.to_owned(), cause })
    }
}

/// The permissions of an endpoint.
pub(super) fn permissions(word: &str) -> Result<u32, String> {
    match u32::from_str_radix(word, 8) {
        Ok(mode) if mode & !0o666 == 0 => Ok(mode),
        _ => Err("write three digits as for chmod, without execution: 600, 660, 666".to_owned()),
    }
}

fn octal<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let word = String::deserialize(from)?;
    permissions(&word).map(Some).map_err(D::Error::custom)
}

fn word<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Mode>, D::Error> {
    let word = String::deserialize(from)?;
    word.parse().map(Some).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Settings::read(file.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_file_has_the_options_by_their_names() {
        let text =
            "nics = ['eth1', 'eth2']\nmode = '666'\nxdp = 'generic'\nbusy-poll = true\nendpoints = 32\n";
        let expected = Settings {
            nics: vec!["eth1".to_owned(), "eth2".to_owned()],
            mode: Some(0o666),
            xdp: Some(Mode::Generic),
            busy_poll: true,
            endpoints: Some(32),
            ..Settings::default()
        };
        assert_eq!(read(text), Ok(expected));
        assert_eq!(read("# nothing yet\n"), Ok(Settings::default()));
    }

    #[test]
    fn the_file_that_is_installed_names_no_nic() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/up.toml");
        assert_eq!(Settings::read(&file).unwrap(), Settings::default());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, words) in [
            ("nics = 'eth1'", "line 1"),
            ("\nnic = ['eth1']", "unknown field `nic`"),
            ("mode = '777'", "600, 660, 666"),
            ("xdp = 'fast'", "native, generic"),
            ("port = 70000", "u16"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        let error = Settings::read(Path::new("/nonexistent/up.toml")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/up.toml"), "{error}");
    }

    #[test]
    fn permissions_are_those_of_files() {
        assert_eq!(permissions("660"), Ok(0o660));
        for wrong in ["777", "rw", "", "1666"] {
            assert!(permissions(wrong).is_err(), "{wrong}");
        }
    }
}
