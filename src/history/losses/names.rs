//! The names under which trainings log their losses.

/// A loss that a history has a place for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Training,
    Evaluation,
}

/// Names of the training loss, the preferred one first. Upper case and punctuation do not count: `Train/Loss` is `train loss`.
pub(super) const TRAINING: [&str; 17] = [
    "train loss",
    "training loss",
    "loss train",
    "loss training",
    "loss",
    "train loss step",
    "train step loss",
    "loss step",
    "train loss epoch",
    "train epoch loss",
    "loss train total",
    "train total loss",
    "train crossentropyloss",
    "reduced train loss",
    "lm loss",
    "loss metrics global avg loss",
    "attnscope loss",
];

/// Names of the evaluation loss, the preferred one first.
pub(super) const EVALUATION: [&str; 14] = [
    "eval loss",
    "val loss",
    "validation loss",
    "valid loss",
    "evaluation loss",
    "loss eval",
    "loss val",
    "loss validation",
    "loss valid",
    "val loss epoch",
    "val epoch loss",
    "val loss step",
    "lm loss validation",
    "validation metrics loss",
];

/// Longest name that is compared.
const LONGEST: usize = 64;

/// Returns which loss a name means, and its place in the list of that loss; `None` for any other name.
pub(super) fn loss_named(name: &str) -> Option<(Kind, usize)> {
    if name.len() > LONGEST {
        return None;
    }
    let mut words = String::with_capacity(name.len());
    for letter in name.chars() {
        if letter.is_alphanumeric() {
            words.extend(letter.to_lowercase());
        } else if !words.is_empty() && !words.ends_with(' ') {
            words.push(' ');
        }
    }
    let words = words.trim_end();
    let place = |list: &[&str]| list.iter().position(|known| *known == words);
    place(&TRAINING)
        .map(|at| (Kind::Training, at))
        .or_else(|| place(&EVALUATION).map(|at| (Kind::Evaluation, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_known_by_the_words_of_their_names() {
        for (name, kind) in [
            ("train/loss", Kind::Training),
            ("Train/Loss", Kind::Training),
            ("loss", Kind::Training),
            ("train_loss", Kind::Training),
            ("loss/train", Kind::Training),
            ("lm-loss", Kind::Training),
            ("train/CrossEntropyLoss", Kind::Training),
            ("eval/loss", Kind::Evaluation),
            ("val_loss", Kind::Evaluation),
            ("Loss/Validation", Kind::Evaluation),
        ] {
            assert_eq!(loss_named(name).map(|(kind, _)| kind), Some(kind), "{name}");
        }
        // The mean over a whole training, which the Trainer writes once at its end, is no loss of a step.
        for name in [
            "train/train_loss",
            "loss_scale",
            "aux_loss",
            "test/loss",
            "",
            "train",
        ] {
            assert_eq!(loss_named(name), None, "{name}");
        }
        assert_eq!(loss_named(&"loss/".repeat(100)), None);
    }

    #[test]
    fn the_manual_lists_all_names_in_order() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/history.md");
        let page = std::fs::read_to_string(page).expect("reads");
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for list in [&TRAINING[..], &EVALUATION[..]] {
            let names: Vec<String> = list.iter().map(|name| format!("`{name}`")).collect();
            assert!(page.contains(&names.join(", ")), "{names:?}");
        }
    }

    #[test]
    fn no_name_is_in_a_list_twice() {
        let all: Vec<&str> = TRAINING.into_iter().chain(EVALUATION).collect();
        for (nth, name) in all.iter().enumerate() {
            assert!(!all[..nth].contains(name), "{name}");
            assert!(loss_named(name).is_some(), "{name}");
        }
    }
}
