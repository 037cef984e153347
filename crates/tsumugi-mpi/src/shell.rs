//! Words as a shell reads them.

use std::ffi::OsStr;

/// The word, in quotes where a shell would see more in it than letters.
#[must_use]
pub fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |at: char| at.is_ascii_alphanumeric() || "-_./:,=+@%^".contains(at);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_what_was_meant() {
        for word in ["", "plain-1.0", "two words", "it's", "$HOME", "a\nb", "*"] {
            let line = format!("printf %s {}", quoted(word.as_ref()));
            let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word, "{line}");
        }
        assert_eq!(quoted("plain-1.0".as_ref()), "plain-1.0");
    }
}
