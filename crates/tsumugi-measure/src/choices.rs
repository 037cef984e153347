//! Options that are one of a few words: `--help` lists the words, each with what it means.

use clap::builder::{PossibleValue, PossibleValuesParser};
use strum::{EnumMessage, VariantArray};

/// The words of an enumeration, each explained by the first paragraph of its variant's documentation.
#[must_use]
pub fn words<T>() -> Vec<PossibleValue>
where
    T: VariantArray + EnumMessage + Copy + Into<&'static str>,
{
    let word = |choice: &T| PossibleValue::new((*choice).into()).help(explanation(choice));
    T::VARIANTS.iter().map(word).collect()
}

/// Takes any of the words of an enumeration.
pub(crate) fn any_of<T>() -> PossibleValuesParser
where
    T: VariantArray + EnumMessage + Copy + Into<&'static str>,
{
    PossibleValuesParser::new(words::<T>())
}

/// A whole number from 1 on.
pub(crate) fn from_one(text: &str) -> Result<u64, String> {
    match text.trim().parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("`{text}` is not a whole number from 1 on")),
    }
}

/// What the documentation says in its first paragraph, without its markup and its last full stop.
fn explanation(choice: &impl EnumMessage) -> String {
    let documentation = choice.get_documentation().unwrap_or_default();
    let paragraph = documentation.split("\n\n").next().unwrap_or_default();
    let text = paragraph.replace('\n', " ").replace(['[', ']', '`'], "");
    text.trim_end_matches('.').to_owned()
}
