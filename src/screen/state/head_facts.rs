//! Heads as conditions see them, and the lines of those that meet some.

use attnscope_checks::stats::{Conditions, HeadType, Values};
use attnscope_report::digits;
use attnscope_spec::{Place, Stack};

use super::find::{Item, Target};

/// A head as conditions see it.
#[derive(Debug, Clone)]
pub struct HeadFacts {
    pub grid: Stack,
    pub layer_idx: usize,
    pub head_idx: usize,
    pub stats: Values,
    pub kind: Option<HeadType>,
}

impl HeadFacts {
    /// Makes the line of the head, with the values that the conditions compare.
    fn item(&self, conditions: &Conditions) -> Item {
        let values = conditions.statistics().map(|stat| {
            let statistic = stat.statistic();
            format!("{} {}", statistic.title, digits(self.stats.of(stat)))
        });
        let kind = self.kind.map(|kind| kind.title().to_owned());
        let about: Vec<String> = values.chain(kind).collect();
        let place = Place::layer(self.grid, self.layer_idx).head(self.head_idx);
        let target = Target::Head {
            grid: self.grid,
            layer_idx: self.layer_idx,
            head_idx: self.head_idx,
        };
        Item {
            about: about.join(" · "),
            ..Item::new(place.to_string(), "head", target)
        }
    }
}

/// Returns a line for each head that meets the conditions of a query.
///
/// # Errors
/// When the query cannot be read as conditions.
pub fn meeting(heads: &[HeadFacts], query: &str) -> Result<Vec<Item>, String> {
    let conditions: Conditions = query.parse()?;
    let meets = |head: &&HeadFacts| {
        let at = (head.grid, head.layer_idx, head.head_idx);
        conditions.hold(at, &head.stats, head.kind)
    };
    let met = heads.iter().filter(meets);
    Ok(met.map(|head| head.item(&conditions)).collect())
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;
    use crate::state::find::Find;
    use crate::state::panel::Panel;

    #[test]
    fn conditions_list_the_heads_that_meet_them_and_say_what_is_wrong() {
        let head = |head_idx: usize, entropy: f64| HeadFacts {
            grid: Stack::Only,
            layer_idx: 1,
            head_idx,
            stats: Values::by_id(|id| (id == "entropy").then_some(entropy)),
            kind: (head_idx == 2).then_some(HeadType::Induction),
        };
        let heads = [head(0, 0.05), head(1, 2.0), head(2, 0.01)];
        let listed = |query: &str| {
            let panel = Item::new("Head", "panel", Target::Panel(Panel::Head));
            let mut find = Find::palette(vec![panel], |_| None, heads.to_vec());
            for c in query.chars() {
                find.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
            }
            let lines = (0..).map_while(|idx| find.item(idx));
            let lines = lines.map(|item| format!("{} {}", item.label, item.about));
            (lines.collect::<Vec<_>>(), find.problem.clone())
        };
        let all = ["L1H0 entropy 0.0500", "L1H2 entropy 0.0100 · induction"];
        assert_eq!(listed("entropy<0.1").0, all);
        assert_eq!(listed("entropy<0.1 type=induction").0, all[1..]);
        let (lines, problem) = listed("entropyy<0.1");
        assert!(lines.is_empty() && problem.is_some_and(|said| said.contains("entropy?")));
        // A plain query searches everything.
        assert_eq!(listed("hea"), (vec!["Head ".to_owned()], None));
    }
}
