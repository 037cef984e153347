//! The style sheet of all reports. The colours of what is compared are defined there and nowhere else.

/// The style sheet.
pub(super) const STYLE: &str = include_str!("style.css");

/// The names that it gives colours, in its order; the first block has all of them, by day.
pub(crate) fn inks() -> impl Iterator<Item = &'static str> {
    let by_day = STYLE.split_once('}').map_or(STYLE, |(first, _)| first);
    by_day.split([';', '{']).filter_map(|line| Some(line.trim().strip_prefix("--")?.split_once(':')?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ink_has_a_colour_by_day_and_one_by_night() {
        assert!(inks().any(|name| name == "text") && inks().count() > 20);
        for name in inks() {
            assert_eq!(STYLE.matches(&format!("--{name}: ")).count(), 2, "{name}");
        }
    }
}
