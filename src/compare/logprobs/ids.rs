//! Ids against ids: what differs before any model runs.

use super::scored::{LogProbs, ScoredPrompt};

/// Prompts of the two sides whose tokens differ.
#[derive(Debug, Clone, PartialEq)]
pub struct IdsApart {
    pub prompt: String,
    /// Tokens of A and of B.
    pub lengths: [usize; 2],
    /// First token that differs.
    pub first: usize,
    /// Ids there; `None` behind the end of a side.
    pub ids: [Option<u32>; 2],
    /// Tokens that one side has more at the front than the other: negative where B has more. `None` if the rest differs too.
    pub more_in_front: Option<isize>,
    /// Whether the only difference is that one side ends earlier.
    pub is_beginning: bool,
}

impl IdsApart {
    /// Says in one sentence what differs.
    pub fn words(&self) -> String {
        let id = |side: usize| self.ids[side].map_or("nothing".to_owned(), |id| format!("id {id}"));
        let [a, b] = [id(0), id(1)];
        match self.more_in_front {
            Some(n) if n != 0 => {
                let (who, other) = if n > 0 { ("A", "B") } else { ("B", "A") };
                let n = n.unsigned_abs();
                let tokens = if n == 1 { "token" } else { "tokens" };
                let begins = format!("A begins with {a}, B with {b}");
                format!(
                    "{who} has {n} {tokens} more in front than {other}, and the rest is equal: {begins}. Another template, or a special token added once more or left out"
                )
            }
            _ if self.is_beginning => {
                let [n_a, n_b] = self.lengths;
                format!(
                    "A has {n_a} tokens, B {n_b}, and the shorter is the beginning of the longer"
                )
            }
            _ => format!(
                "the ids differ from token {} on: {a} in A, {b} in B. Another tokenizer, template or special token",
                self.first
            ),
        }
    }
}

/// Most tokens that may stand in front of one side alone.
const MOST_IN_FRONT: usize = 512;

/// Compares the ids of one prompt; `None` if they are equal or not known.
pub fn apart(a: &ScoredPrompt, b: &ScoredPrompt) -> Option<IdsApart> {
    let (of_a, of_b) = (a.ids()?, b.ids()?);
    if of_a == of_b {
        return None;
    }
    let both = of_a.iter().zip(&of_b);
    let first = both.take_while(|(a, b)| a == b).count();
    let is_beginning = first == of_a.len() || first == of_b.len();
    let is_rest = |long: &[u32], short: &[u32]| {
        let n = long.len().checked_sub(short.len())?;
        // Two tokens may be equal by chance.
        let is_rest = (1..=MOST_IN_FRONT).contains(&n) && short.len() >= 3 && long[n..] == *short;
        is_rest.then_some(n as isize)
    };
    let in_front = is_rest(&of_a, &of_b).or_else(|| is_rest(&of_b, &of_a).map(|n| -n));
    Some(IdsApart {
        prompt: a.name.clone(),
        lengths: [of_a.len(), of_b.len()],
        first,
        ids: [of_a.get(first).copied(), of_b.get(first).copied()],
        more_in_front: in_front.filter(|_| !is_beginning),
        is_beginning,
    })
}

/// Pairs the prompts of two tables: by ids where these are equal, else by name, else by place. // (index in A, index in B)
pub fn paired(a: &LogProbs, b: &LogProbs) -> Vec<(usize, usize)> {
    type Rule = fn((usize, &ScoredPrompt), (usize, &ScoredPrompt)) -> bool;
    let has_ids: Rule =
        |(_, one), (_, other)| one.ids().is_some_and(|ids| Some(ids) == other.ids());
    let has_both: Rule = |(_, one), (_, other)| {
        one.name == other.name && one.ids().is_some_and(|ids| Some(ids) == other.ids())
    };
    let has_name: Rule = |(_, one), (_, other)| one.name == other.name;
    let has_place: Rule = |(idx, _), (other, _)| idx == other;
    let mut partner: Vec<Option<usize>> = vec![None; a.prompts.len()];
    let mut is_free = vec![true; b.prompts.len()];
    for rule in [has_both, has_ids, has_name, has_place] {
        for (idx, one) in a.prompts.iter().enumerate() {
            if partner[idx].is_some() {
                continue;
            }
            let mut others = b
                .prompts
                .iter()
                .enumerate()
                .filter(|(other, _)| is_free[*other]);
            if let Some((other, _)) = others.find(|other| rule((idx, one), *other)) {
                (partner[idx], is_free[other]) = (Some(other), false);
            }
        }
    }
    let pairs = partner.into_iter().enumerate();
    pairs
        .filter_map(|(idx, other)| Some((idx, other?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::scored::ScoredToken;
    use super::*;

    fn prompt(ids: &[u32]) -> ScoredPrompt {
        let token = |id: &u32| ScoredToken {
            id: Some(*id),
            ..ScoredToken::default()
        };
        ScoredPrompt {
            name: "p".to_owned(),
            tokens: ids.iter().map(token).collect(),
            lacks_context: false,
        }
    }

    #[test]
    fn a_token_in_front_is_told_from_other_ids() {
        let found = apart(&prompt(&[1, 1, 5, 6, 7]), &prompt(&[1, 5, 6, 7])).expect("apart");
        assert_eq!(found.more_in_front, Some(1));
        assert!(found.words().starts_with("A has 1 token more in front"));
        let found = apart(&prompt(&[1, 5, 6]), &prompt(&[1, 5, 6, 7])).expect("apart");
        assert!(found.is_beginning);
        let found = apart(&prompt(&[1, 5, 6, 9]), &prompt(&[1, 5, 8, 9])).expect("apart");
        assert_eq!((found.first, found.ids), (2, [Some(6), Some(8)]));
        assert_eq!(found.more_in_front, None);
        assert_eq!(apart(&prompt(&[1, 2]), &prompt(&[1, 2])), None);
    }

    #[test]
    fn prompts_are_paired_by_ids_before_names() {
        let table = |all: &[&[u32]]| LogProbs {
            prompts: all.iter().map(|ids| prompt(ids)).collect(),
            ..LogProbs::default()
        };
        let (a, b) = (table(&[&[1, 2], &[3, 4], &[5]]), table(&[&[3, 4], &[1, 2]]));
        assert_eq!(paired(&a, &b), [(0, 1), (1, 0)]);
    }
}
