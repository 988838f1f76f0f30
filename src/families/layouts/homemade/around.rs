//! Gives the tensors around the layers of a model of pictures their part: positions, norms, and a head of one or two matrices.

use attnscope_compute::error::Result;

use super::super::Facts;
use super::HomeMade;
use super::outside::{Input, Outside, is_of_embedding};
use super::parts::{twice, unknown};
use super::pictures::{Pictures, is_gain, is_places, is_square_patch, number, parent};
use super::stack::{Entry, Stack};
use crate::reading::described::names::{is_bias, stem};

impl<'a> Outside<'a> {
    /// # Errors
    /// When a tensor fits no part, or two fit the same one.
    pub fn of_pictures(
        facts: &Facts<'_>,
        stack: &'a Stack,
        pictures: &'a Pictures,
    ) -> Result<Self> {
        let outside = &stack.outside;
        let d_model = pictures.map.shape[0];
        let (mut positions, mut gains, mut matrices, mut biases) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for entry in outside {
            match entry.trimmed().len() {
                _ if is_places(entry, d_model) => positions.push(entry),
                1 if is_bias(&entry.words) => biases.push(entry),
                1 if is_gain(entry) => gains.push(entry),
                2 if entry.shape.len() == 2 => matrices.push(entry),
                _ => return Err(unknown(facts, entry)),
            }
        }
        let is_table = |entry: &&Entry| {
            let wide = entry.shape.iter().filter(|n| **n != 1).count();
            [2, 3].contains(&wide) && entry.shape.last() == Some(&d_model)
        };
        if let Some(entry) = positions.iter().find(|entry| !is_table(entry)) {
            return Err(unknown(facts, entry));
        }
        let positions = only(facts, "the table of positions", &positions)?;
        let (head, dense, aside) = head(facts, &matrices, d_model)?;
        let mut found = Self {
            tokens: &pictures.map,
            input: Input::Patches,
            aside,
            positions,
            token_types: None,
            embed_norm: None,
            final_norm: None,
            head,
            dense,
            pooled_norm: None,
            head_norm: None,
            unused_norm: None,
            biases: Vec::new(),
        };
        let of_head = found.head_module(outside);
        let aside = found.aside.clone();
        let is_aside = |entry: &Entry| {
            let within = |module: &String| entry.first.starts_with(&format!("{module}."));
            aside.as_ref().is_some_and(within)
        };
        for norm in gains.into_iter().filter(|norm| !is_aside(norm)) {
            let is_of_head = of_head.is_some() && parent(norm) == of_head;
            let (place, part, width) = match (is_of_head, found.dense) {
                (true, Some(dense)) if number(norm) > number(dense) => {
                    (&mut found.head_norm, "the norm of the head", dense.shape[0])
                }
                (true, _) => (&mut found.pooled_norm, "the norm of the head", d_model),
                (false, _) if is_of_embedding(norm) || norm.has_word(&["pre"]) => {
                    (&mut found.embed_norm, "the norm of embeddings", d_model)
                }
                (false, _) => (&mut found.final_norm, "the final norm", d_model),
            };
            if norm.shape != [width] {
                return Err(unknown(facts, norm));
            }
            if let Some(other) = place.replace(norm) {
                return Err(twice(facts, part, other, norm));
            }
        }
        let parts = || {
            let norms = [
                found.embed_norm,
                found.final_norm,
                found.pooled_norm,
                found.head_norm,
            ];
            norms.into_iter().chain([found.dense, found.head]).flatten()
        };
        let has_owner = |bias: &&Entry| {
            is_aside(bias) || parts().any(|part| stem(&part.words) == stem(&bias.words))
        };
        if let Some(bias) = biases.iter().find(|bias| !has_owner(bias)) {
            return Err(unknown(facts, bias));
        }
        found.biases = biases;
        // Some code keeps a last norm that it does not run: no gradient reaches it.
        let is_untouched = |norm: &Entry| holds_ones(facts, norm);
        let mut of_layers = stack.layer.iter().filter(|entry| is_gain(entry));
        if found.final_norm.is_some_and(is_untouched) && of_layers.any(|norm| !is_untouched(norm)) {
            found.unused_norm = found.final_norm.take();
        }
        Ok(found)
    }

    /// The module of the head, if nothing else is in it but norms.
    fn head_module(&self, outside: &[Entry]) -> Option<&'a str> {
        let first = self.dense.or(self.head)?;
        let module = parent(first)?;
        let is_inside = |entry: &&Entry| entry.first.starts_with(&format!("{module}."));
        let is_of_head = |entry: &Entry| {
            let names = [Some(first), self.head].into_iter().flatten();
            names.into_iter().any(|own| own.first == entry.first)
                || entry.shape.len() == 1 && parent(entry) == Some(module)
        };
        let mut inside = outside.iter().filter(is_inside);
        inside.all(is_of_head).then_some(module)
    }
}

impl HomeMade<'_> {
    /// Leaves a norm aside that no training changed.
    pub(super) fn leave_unused(&self, facts: &mut Facts<'_>) {
        let Some(norm) = self.outside.unused_norm else {
            return;
        };
        facts.remarks.push(format!(
            "{} was left aside: no training changed it, as if the code did not run it; final_norm under [tensors] in attnscope.toml reads it",
            norm.first
        ));
        facts.tensors.forget(&norm.first);
        if let Some(bias) = self.outside.bias_of(norm) {
            facts.tensors.forget(&bias.first);
        }
    }

    /// Says how rows of numbers that may be patches are read as those of a picture.
    pub(super) fn suggest_pictures(&self, facts: &mut Facts<'_>) {
        let map = self.outside.tokens;
        let is_of_values = self.outside.input == Input::Values;
        if is_of_values && map.has_word(&["patch", "patches"]) && is_square_patch(map.shape[1]) {
            facts.remarks.push(format!(
                "{} is read as a map of {} numbers at each position; if they are the pixels of a patch, --set picture_size=… reads pictures",
                map.first, map.shape[1]
            ));
        }
    }
}

/// The only one of a kind.
fn only<'a>(facts: &Facts<'_>, part: &str, found: &[&'a Entry]) -> Result<Option<&'a Entry>> {
    match found {
        [one, other, ..] => Err(twice(facts, part, one, other)),
        _ => Ok(found.first().copied()),
    }
}

/// The last matrix of the head, the one before it, and the module of a head of more than two, which is not read.
type Head<'a> = (Option<&'a Entry>, Option<&'a Entry>, Option<String>);

fn head<'a>(facts: &Facts<'_>, matrices: &[&'a Entry], d_model: usize) -> Result<Head<'a>> {
    let reads = |entry: &Entry, n: usize| entry.shape[1] == n;
    match matrices {
        [] => Ok((None, None, None)),
        [one] if reads(one, d_model) => Ok((Some(one), None, None)),
        [one] if one.shape[1].is_multiple_of(d_model) => {
            let problem = format!(
                "reads the {} rows of a picture in one; a head of this kind is not read: expected the rows of one token or their mean",
                one.shape[1] / d_model
            );
            Err(facts.at(&one.first, problem))
        }
        [one] => Err(unknown(facts, one)),
        [a, b] => {
            let follows =
                |first: &Entry, last: &Entry| reads(first, d_model) && reads(last, first.shape[0]);
            match (follows(a, b), follows(b, a)) {
                (true, false) => Ok((Some(b), Some(a), None)),
                (false, true) => Ok((Some(a), Some(b), None)),
                _ => Err(twice(facts, "the head", a, b)),
            }
        }
        [one, .., last] => match (parent(one), parent(last)) {
            (Some(module), Some(other)) if module == other => {
                Ok((None, None, Some(module.to_owned())))
            }
            _ => Err(twice(facts, "the head", one, last)),
        },
    }
}

/// Whether all gains are exactly 1, as they were before a training.
fn holds_ones(facts: &Facts<'_>, norm: &Entry) -> bool {
    let values = facts.tensors.get(&norm.first);
    let values = values.and_then(|view| view.widen().ok());
    values.is_some_and(|values| values.iter().all(|value| *value == 1.0))
}
