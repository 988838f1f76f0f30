//! Gives the arrays of a dump the names of hooks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use attnscope_checkpoint::captured::{Captured, Part};
use attnscope_compute::error::Result;
use attnscope_forward::Hook;
use attnscope_spec::Stack;

use super::fused::{Columns, columns_by_numbers};
use super::modules::{OTHER_MODALITIES, Reads};
use super::place::Place;
use super::{ABOUT, Dialect, Opened, nothing_found};

/// The array that each reading of a layer comes from, by the layer's number.
type Layers = BTreeMap<usize, BTreeMap<Reads, String>>;

/// Arrays sorted by what they are.
#[derive(Default)]
struct Sorted {
    /// By the path of what holds the layers.
    layers: BTreeMap<String, Layers>,
    outside: BTreeMap<Reads, String>,
    /// Patterns and residuals that a number behind the name counts.
    counted: BTreeMap<(Reads, usize), String>,
    /// Names of arrays that are no hook.
    others: Vec<String>,
}

/// Arrays under the names of hooks, before they replace those of modules.
struct Named<'a> {
    captured: &'a mut Captured,
    names: BTreeSet<String>,
    hooks: BTreeSet<Hook>,
    n_tokens: Option<usize>,
    /// The columns of fused projections that the numbers told, and what is said of them.
    columns: Option<Columns>,
    said: BTreeSet<String>,
}

/// Gives hooks their names and leaves out everything else.
///
/// # Errors
/// When the dump has no hook, or holds several sequences or a part of one.
pub(super) fn assemble(opened: Opened, dialect: &Dialect) -> Result<Captured> {
    let Opened { mut arrays, part } = opened;
    let sorted = sorted(&arrays, dialect);
    let n_tokens = sorted.outside.get(&Reads::Tokens).and_then(|name| {
        let shape = arrays.shape(name)?;
        shape.last().copied()
    });
    whole_pass(&arrays, &sorted, n_tokens)?;
    let before: Vec<String> = arrays.names().into_iter().map(str::to_owned).collect();
    let mut named = Named {
        captured: &mut arrays,
        names: BTreeSet::new(),
        hooks: BTreeSet::new(),
        n_tokens,
        columns: None,
        said: BTreeSet::new(),
    };
    for (stack, layers) in stacks(&sorted) {
        named.layers(stack, &layers, &sorted)?;
    }
    let mut said = named.outside(&sorted)?;
    said.extend(named.said.iter().map(|own| format!("; {own}")));
    let (names, hooks) = (named.names, named.hooks);
    if hooks.is_empty() {
        return Err(nothing_found(&arrays.path, dialect, &sorted.others));
    }
    for name in before.iter().filter(|name| !names.contains(*name)) {
        arrays.forget(name);
    }
    let hooks: Vec<&str> = hooks.into_iter().map(Hook::name).collect();
    let source = match part {
        Some(part) => format!("{}, {part}", dialect.name),
        None => dialect.name.to_owned(),
    };
    let about = format!("{source}: read {}{said}", hooks.join(", "));
    arrays
        .metadata
        .insert("attnscope.source".to_owned(), source);
    arrays.metadata.insert(ABOUT.to_owned(), about);
    Ok(arrays)
}

fn sorted(arrays: &Captured, dialect: &Dialect) -> Sorted {
    let mut sorted = Sorted::default();
    // The row that each reading comes from: an earlier row of the table wins.
    let mut rows: BTreeMap<(String, Option<usize>, Reads), usize> = BTreeMap::new();
    for name in arrays.names() {
        let found = Place::parse(name).and_then(|place| {
            let is_other = place
                .root
                .split('.')
                .any(|part| OTHER_MODALITIES.contains(&part));
            let is_layer = place.layer_idx.is_some();
            let (reads, row_idx, number) =
                dialect.table.reads(place.module, place.port, is_layer)?;
            (!is_other).then_some((place, reads, row_idx, number))
        });
        let Some((place, reads, row_idx, number)) = found else {
            sorted.others.push(name.to_owned());
            continue;
        };
        if let Some(number) = number {
            sorted.counted.insert((reads, number), name.to_owned());
            continue;
        }
        let root = if place.layer_idx.is_some() {
            place.root
        } else {
            ""
        };
        let key = (root.to_owned(), place.layer_idx, reads);
        if rows.get(&key).is_some_and(|earlier| *earlier <= row_idx) {
            continue;
        }
        rows.insert(key, row_idx);
        let of = match place.layer_idx {
            Some(layer_idx) => {
                let layers = sorted.layers.entry(root.to_owned()).or_default();
                layers.entry(layer_idx).or_default()
            }
            None => &mut sorted.outside,
        };
        of.insert(reads, name.to_owned());
    }
    sorted
}

/// The layers of each stack. Of several lists of layers that are no encoder and decoder, the one with the most arrays counts.
fn stacks(sorted: &Sorted) -> Vec<(Stack, Layers)> {
    let is_in = |root: &str, part: &str| root.split('.').any(|own| own == part);
    let of = |part: &str| sorted.layers.iter().find(|(root, _)| is_in(root, part));
    if let (Some((_, encoder)), Some((_, decoder))) = (of("encoder"), of("decoder")) {
        return vec![
            (Stack::Encoder, encoder.clone()),
            (Stack::Decoder, decoder.clone()),
        ];
    }
    let n_arrays = |layers: &&Layers| layers.values().map(BTreeMap::len).sum::<usize>();
    let mut only = sorted
        .layers
        .values()
        .max_by_key(n_arrays)
        .cloned()
        .unwrap_or_default();
    let n_layers = only.last_key_value().map(|(last, _)| last + 1);
    for ((reads, number), name) in &sorted.counted {
        // The last of the hidden states has gone through the norm that follows the layers.
        let is_last = n_layers.is_some_and(|n_layers| *number >= n_layers)
            || (n_layers.is_none() && sorted.counted.keys().all(|(_, other)| other <= number));
        let reads = match reads {
            Reads::PatternOf => Reads::Hook(Hook::Pattern),
            _ if is_last => continue,
            _ => Reads::Before,
        };
        only.entry(*number)
            .or_default()
            .entry(reads)
            .or_insert_with(|| name.clone());
    }
    vec![(Stack::Only, only)]
}

/// Refuses a pass that computed only a part of a sequence, or several sequences side by side.
fn whole_pass(arrays: &Captured, sorted: &Sorted, n_tokens: Option<usize>) -> Result<()> {
    let (Some(name), Some(n_tokens)) = (sorted.outside.get(&Reads::Lengths), n_tokens) else {
        return Ok(());
    };
    let lengths = arrays.whole_numbers(name)?.unwrap_or_default();
    match *lengths {
        [] => Ok(()),
        [length] if length == n_tokens as u64 => Ok(()),
        [length] => Err(arrays.at(
            name,
            &format!(
                "expected a pass over a whole sequence, found one over {n_tokens} of its {length} tokens: record the first pass of a \
                 request, without a cached prefix"
            ),
        )),
        _ => Err(arrays.at(
            name,
            &format!("expected one sequence, found {}: record one request alone", lengths.len()),
        )),
    }
}

impl Named<'_> {
    fn layers(&mut self, stack: Stack, layers: &Layers, sorted: &Sorted) -> Result<()> {
        let n_layers = layers.last_key_value().map_or(0, |(last, _)| last + 1);
        for (layer_idx, found) in layers {
            let has_norms = found.contains_key(&Reads::NormedFeedForward);
            for (reads, name) in found {
                let (layer_idx, hook) = match reads {
                    Reads::Hook(Hook::AttnOut | Hook::MlpOut) if has_norms => continue,
                    Reads::NormedAttention if has_norms => (*layer_idx, Hook::AttnOut),
                    Reads::NormedFeedForward => (*layer_idx, Hook::MlpOut),
                    Reads::Hook(hook) => (*layer_idx, *hook),
                    Reads::Before => match layer_idx.checked_sub(1) {
                        None => (0, Hook::ResidPre),
                        Some(before) => (before, Hook::ResidPost),
                    },
                    _ => continue,
                };
                self.hook(stack, layer_idx, hook, name)?;
            }
            if let Some(fused) = found.get(&Reads::Fused) {
                let z = found.get(&Reads::Hook(Hook::Z));
                self.fused(stack, *layer_idx, fused, z.map(String::as_str))?;
            }
            if let Some(fused) = found.get(&Reads::FusedSomehow) {
                let z = found.get(&Reads::Hook(Hook::Z));
                self.fused_somehow(stack, *layer_idx, fused, z.map(String::as_str))?;
            }
        }
        if let (Some(name), Some(last)) =
            (sorted.outside.get(&Reads::Last), n_layers.checked_sub(1))
            && stack != Stack::Encoder
        {
            self.hook(stack, last, Hook::ResidPost, name)?;
        }
        Ok(())
    }

    /// Adds a hook, unless it was added before.
    fn hook(&mut self, stack: Stack, layer_idx: usize, hook: Hook, of: &str) -> Result<()> {
        let name = hook.full_name(stack, layer_idx);
        let is_of_heads = matches!(
            hook,
            Hook::Q | Hook::K | Hook::V | Hook::RotQ | Hook::RotK | Hook::Z
        );
        let shape = self.captured.shape(of).unwrap_or_default();
        let has_heads = match *shape {
            [_, _, _, _] => true,
            [n, ..] if shape.len() == 3 => n > 1 && Some(n) == self.n_tokens,
            _ => false,
        };
        let name = if is_of_heads && has_heads {
            name.replace(".attn.", ".attn.hook_")
        } else {
            name
        };
        if self.names.contains(&name) {
            return Ok(());
        }
        self.captured.define(&name, &[Part::whole(of)])?;
        self.names.insert(name);
        self.hooks.insert(hook);
        Ok(())
    }

    /// Divides queries, keys and values that lie side by side. Queries are as wide as z; without z, all three are taken as equal.
    fn fused(&mut self, stack: Stack, layer_idx: usize, of: &str, z: Option<&str>) -> Result<()> {
        let width_of = |name: &str| self.captured.shape(name)?.last().copied();
        let Some(width) = width_of(of) else {
            return Ok(());
        };
        let of_q = z.and_then(width_of).unwrap_or(width / 3);
        let Some(rest) = width
            .checked_sub(of_q)
            .filter(|rest| rest.is_multiple_of(2) && *rest > 0)
        else {
            let problem = format!(
                "expected queries of {of_q} columns, then keys and values of equal width, found {width} columns"
            );
            return Err(self.captured.at(of, &problem));
        };
        let ends = [0, of_q, of_q + rest / 2, width];
        // One stretch of columns each.
        let parts = [0, 1, 2].map(|idx| std::iter::once(ends[idx]..ends[idx + 1]).collect());
        self.divide(stack, layer_idx, of, &parts)
    }

    /// Divides queries, keys and values where only the numbers can tell their columns, and says what they told. The first layer that has
    /// a z decides for all.
    fn fused_somehow(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        of: &str,
        z: Option<&str>,
    ) -> Result<()> {
        let module = of.rsplit_once(':').map_or(of, |(path, _)| path);
        let module = module.rsplit('.').next().unwrap_or(module).to_owned();
        let (None, Some(z)) = (&self.columns, z) else {
            return match self.columns.clone() {
                Some(columns) => self.divide(stack, layer_idx, of, &columns.parts),
                None => {
                    self.said.insert(format!(
                        "left out {module}: without z, what the attention layer's last projection reads, nothing tells its columns"
                    ));
                    Ok(())
                }
            };
        };
        let (row, z) = (self.captured.array(of)?, self.captured.array(z)?);
        let width = row.shape.last().copied().unwrap_or(0);
        let n_rows = row.values.len().checked_div(width).unwrap_or(0);
        let of_z = z.values.len().checked_div(n_rows).unwrap_or(0);
        let found = columns_by_numbers(
            row.values.get(..width).unwrap_or_default(),
            z.values.get(..of_z).unwrap_or_default(),
        );
        let Some(columns) = found else {
            self.said.insert(format!(
                "left out {module}: no order of its columns gives the first position's z as its values"
            ));
            return Ok(());
        };
        self.said.insert(format!(
            "{module} has {}, by the first position's z",
            columns.words
        ));
        self.divide(stack, layer_idx, of, &columns.parts)?;
        self.columns = Some(columns);
        Ok(())
    }

    /// Gives queries, keys and values their columns of one array.
    fn divide(
        &mut self,
        stack: Stack,
        layer_idx: usize,
        of: &str,
        parts: &[Vec<Range<usize>>; 3],
    ) -> Result<()> {
        for (hook, columns) in [Hook::Q, Hook::K, Hook::V].into_iter().zip(parts) {
            let name = hook.full_name(stack, layer_idx);
            if self.names.contains(&name)
                || self.names.contains(&name.replace(".attn.", ".attn.hook_"))
            {
                continue;
            }
            let part = |columns: &Range<usize>| Part {
                columns: Some(columns.clone()),
                ..Part::whole(of)
            };
            let parts: Vec<Part> = columns.iter().map(part).collect();
            self.captured.define(&name, &parts)?;
            self.names.insert(name);
            self.hooks.insert(hook);
        }
        Ok(())
    }

    /// Names what is no part of a layer, and says what was left out.
    fn outside(&mut self, sorted: &Sorted) -> Result<String> {
        let mut said = String::new();
        for (reads, new) in [
            (Reads::Tokens, "tokens"),
            (Reads::DecoderTokens, "decoder_tokens"),
            (Reads::AttentionMask, "attention_mask"),
            (Reads::Logits, "logits"),
        ] {
            let Some(name) = sorted.outside.get(&reads) else {
                continue;
            };
            let shape = self.captured.shape(name).unwrap_or_default();
            match reads {
                // A mask of queries by keys is no mask of tokens.
                Reads::AttentionMask if shape.len() > 2 => continue,
                Reads::Logits => {
                    let n_rows = shape.len().checked_sub(2).map(|axis| shape[axis]);
                    if let (Some(n_tokens), Some(n_rows)) = (self.n_tokens, n_rows)
                        && n_tokens != n_rows
                    {
                        said = format!("; left out logits of {n_rows} of {n_tokens} positions");
                        continue;
                    }
                    self.hooks.insert(Hook::Logits);
                }
                _ => {}
            }
            self.captured.define(new, &[Part::whole(name)])?;
            self.names.insert(new.to_owned());
        }
        Ok(said)
    }
}
