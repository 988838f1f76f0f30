//! Checks and statistics by the names that people write: ids, or the words of the screen.

use attnscope_checkpoint::nearest::did_you_mean;

use super::stats::{STATISTICS, Stat};
use super::{CHECKS, Check};

/// A name as names are compared: in lower case, with the words of an id.
fn plain(name: &str) -> String {
    let words = name.split(|c: char| c.is_whitespace() || c == '-' || c == '_');
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.join("_")
}

/// The check with an id, however its words are separated.
///
/// # Errors
/// When there is none: the message names the most similar ones.
pub fn check_named(name: &str) -> Result<&'static Check, String> {
    let found = CHECKS.iter().find(|check| plain(check.id) == plain(name));
    found.copied().ok_or_else(|| {
        let meant = did_you_mean(name, CHECKS.iter().map(|check| check.id));
        format!("there is no such check{meant}; attnscope explain lists them")
    })
}

/// The statistic with an id, an alias or a title of the screen.
///
/// # Errors
/// When there is none: the message names the most similar ones.
pub fn statistic_named(name: &str) -> Result<Stat, String> {
    let name = plain(name);
    let by_title = || {
        let mut all = Stat::ALL.iter().copied();
        all.find(|stat| plain(stat.statistic().title) == name)
    };
    Stat::named(&name).or_else(by_title).ok_or_else(|| {
        let meant = did_you_mean(&name, STATISTICS.iter().map(|statistic| statistic.id));
        format!("there is no such statistic{meant}; attnscope explain statistics lists them")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_screen_are_accepted_and_unknown_ones_get_the_nearest() {
        let statistic = |name: &str| statistic_named(name).map(Stat::id);
        assert_eq!(statistic("after same token"), Ok("induction_mass"));
        assert_eq!(statistic("Induction-Mass"), Ok("induction_mass"));
        assert_eq!(statistic("current_mass"), Ok("diagonal_mass"));
        let said = statistic("entropyy").expect_err("no such statistic");
        assert!(said.contains("did you mean entropy?"), "{said}");
        let said = statistic("mood").expect_err("no such statistic");
        assert!(!said.contains("did you mean"), "{said}");
        assert_eq!(
            check_named("future leak").map(|check| check.id),
            Ok("future-leak")
        );
        let said = check_named("entropy").map(|check| check.id);
        let said = said.expect_err("no such check");
        let both = "did you mean entropy-collapse or entropy-uniform?";
        assert!(said.contains(both), "{said}");
    }

    #[test]
    fn no_title_is_the_name_of_another_statistic() {
        for stat in Stat::ALL {
            assert_eq!(statistic_named(stat.id()), Ok(*stat));
            assert_eq!(statistic_named(stat.statistic().title), Ok(*stat));
        }
    }
}
