//! The style sheet of all reports. The colours of what is compared are defined there and nowhere else.

/// The style sheet.
pub(super) const STYLE: &str = include_str!("style.css");

/// The names that it gives colours, in its order; the first block has all of them, by day.
pub(crate) fn inks() -> impl Iterator<Item = &'static str> {
    by_day().map(|(name, _)| name)
}

fn by_day() -> impl Iterator<Item = (&'static str, &'static str)> {
    colours(STYLE.split_once('}').map_or(STYLE, |(first, _)| first))
}

fn colours(block: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    block.split([';', '{']).filter_map(|line| line.trim().strip_prefix("--")?.split_once(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The block that follows some words.
    fn block(after: &str) -> &'static str {
        let (_, rest) = STYLE.split_once(after).expect("the block is there");
        rest.split_once('}').expect("it ends").0
    }

    fn by_night() -> Vec<(&'static str, &'static str)> {
        colours(block("(prefers-color-scheme: dark)")).collect()
    }

    /// Relative luminance, as the Web Content Accessibility Guidelines define it.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = u8::from_str_radix(&colour[at..at + 2], 16).expect("a colour in hexadecimal");
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
        one.max(other) / one.min(other)
    }

    #[test]
    fn every_name_has_a_colour_by_day_and_one_by_night() {
        assert!(inks().any(|name| name == "text") && inks().count() > 20);
        let by_night: Vec<&str> = by_night().iter().map(|(name, _)| *name).collect();
        assert_eq!(inks().collect::<Vec<_>>(), by_night);
    }

    #[test]
    fn colours_stand_out_from_their_ground() {
        assert!((contrast("#ffffff", "#000000") - 21.0).abs() < 1e-9);
        for colours in [by_day().collect(), by_night()] {
            let of = |name: &str| colours.iter().find(|(it, _)| *it == name).expect("a ground").1;
            // What is no text: the grounds, and rules that part what stands apart without them.
            let others = ["page", "card", "rule"];
            for (name, colour) in colours.iter().filter(|(name, _)| !others.contains(name)) {
                // Level AA asks 4.5 of text, and 3 of pictures.
                let least = if ["text", "soft"].contains(name) { 4.5 } else { 3.0 };
                for ground in [of("card"), of("page")] {
                    let contrast = contrast(colour, ground);
                    assert!(contrast >= least, "{name} {colour} on {ground}: {contrast:.2} < {least}");
                }
            }
        }
    }
}
