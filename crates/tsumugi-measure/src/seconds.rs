//! Seconds on the command line.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Most seconds that anything is measured for, or waited for.
const SECONDS_MAX: f64 = 3600.0;

/// A number of seconds over 0 and up to an hour.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => Ok(seconds),
        _ => Err(format!("`{text}` is not a number of seconds over 0 and up to {SECONDS_MAX}")),
    }
}

/// The same as a duration.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    seconds(text).map(Duration::from_secs_f64)
}

/// A number of seconds within a range.
pub(crate) fn within(range: RangeInclusive<f64>) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| match text.trim().parse::<f64>() {
        Ok(seconds) if range.contains(&seconds) => Ok(seconds),
        _ => Err(format!("`{text}` is not a number of seconds from {} to {}", range.start(), range.end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_limits() {
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert_eq!(duration("2"), Ok(Duration::from_secs(2)));
        for wrong in ["0", "-1", "nan", "inf", "3601", "", "1s"] {
            assert!(seconds(wrong).is_err_and(|said| said.contains("not a number of seconds")), "{wrong}");
        }
        let few = within(0.2..=600.0);
        assert_eq!(few("600"), Ok(600.0));
        assert_eq!(few("0"), Err("`0` is not a number of seconds from 0.2 to 600".into()));
    }
}
