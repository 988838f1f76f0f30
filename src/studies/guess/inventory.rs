//! Inventory of a checkpoint: tensors of one layer, with a placeholder for its number in their names, and tensors around layers.

use std::collections::BTreeMap;

use attnscope_checkpoint::Tensors;
use attnscope_families::description::{HEAD, written_hole};

use attnscope_families::description::names::words_of;

/// A stored tensor, or the corresponding tensors of all layers.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Name with `{layer}` in place of the layer number.
    pub name: String,
    /// Words after the layer number, or of the whole name for tensors around the layers.
    pub words: Vec<String>,
    pub shape: Vec<usize>,
    /// Place of the first of them in the files, which is the order of definition if the format keeps it.
    place: (usize, usize),
    /// Mean of the values of a vector.
    pub mean: f32,
    /// Number of adjacent tensors that hold one head each.
    pub n_joined: Option<usize>,
}

impl Tensor {
    pub fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Fact that a stored buffer reveals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Told {
    /// Frequencies of a rotary embedding.
    Rotary { theta: f64, d_rotary: usize },
}

/// All stored tensors, grouped by layer.
#[derive(Debug, Clone)]
pub struct Inventory {
    pub n_layers: usize,
    pub in_layer: Vec<Tensor>,
    pub around: Vec<Tensor>,
    pub told: Vec<(String, Told)>,
    /// How the layers were found, for the user.
    pub evidence: String,
}

/// A number inside a name, with the text around it.
struct Numbered<'a> {
    before: &'a str,
    number: usize,
    after: &'a str,
}

/// Larger numbers are not layer numbers.
const MOST_LAYERS: usize = 4096;

fn numbers_in(name: &str) -> Vec<Numbered<'_>> {
    let bytes = name.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let end = at
            + bytes[at..]
                .iter()
                .take_while(|b| b.is_ascii_digit())
                .count();
        if let Ok(number) = name[at..end].parse::<usize>()
            && number < MOST_LAYERS
        {
            found.push(Numbered {
                before: &name[..at],
                number,
                after: &name[end..],
            });
        }
        at = end;
    }
    found
}

/// Tensors after a number in their names, with their shapes; equal for numbers of equal layers.
type Signature<'a> = Vec<(&'a str, &'a [usize])>;

/// Layers whose names share a prefix: every `step` numbers from `first` on are one layer.
struct Run<'a> {
    before: &'a str,
    first: usize,
    step: usize,
    n_layers: usize,
    n_elements: usize,
}

impl Inventory {
    /// Groups the tensors of a checkpoint.
    pub fn of(tensors: &Tensors) -> Self {
        let mut told = Vec::new();
        let mut kept: Vec<(&str, Vec<usize>)> = Vec::new();
        for (name, info) in tensors.iter() {
            if !info.dtype.is_float() || info.n_elements() == 0 {
                continue;
            }
            let words = words_of(name);
            match buffer(tensors, name, &info.shape, &words) {
                Buffer::No => kept.push((name, info.shape.clone())),
                Buffer::Told(fact) => told.push((name.to_owned(), fact)),
                Buffer::Nothing => {}
            }
        }
        let by_prefix = best_run(&kept);
        let by_roles = lists(&kept);
        let n_by_prefix = by_prefix.as_ref().map_or(0, |run| run.n_elements);
        let n_by_roles = by_roles.as_ref().map_or(0, |(_, _, n)| *n);
        let describe = |name: &str, template: String, suffix: &str| {
            let info = tensors.info(name);
            Tensor {
                words: words_of(suffix),
                shape: info.map(|info| info.shape.clone()).unwrap_or_default(),
                place: info.map_or((0, 0), |info| info.place()),
                mean: mean_of(tensors, name),
                name: template,
                n_joined: None,
            }
        };
        let (mut in_layer, mut around) = (Vec::new(), Vec::new());
        let (n_layers, evidence);
        if let Some(run) = by_prefix.filter(|_| 10 * n_by_prefix >= 9 * n_by_roles) {
            for (name, _) in &kept {
                let numbered = numbers_in(name)
                    .into_iter()
                    .find(|n| n.before == run.before);
                let place = numbered.filter(|n| {
                    (run.first..run.first + run.step * run.n_layers).contains(&n.number)
                });
                match place {
                    None => around.push(describe(name, (*name).to_owned(), name)),
                    Some(n) if n.number < run.first + run.step => {
                        let hole = written_hole(run.step, n.number);
                        let template = format!("{}{hole}{}", run.before, n.after);
                        let suffix = if run.step > 1 {
                            format!("{}.{}", n.number - run.first, n.after)
                        } else {
                            n.after.to_owned()
                        };
                        in_layer.push(describe(name, template, &suffix));
                    }
                    Some(_) => {}
                }
            }
            n_layers = run.n_layers;
            evidence = format!(
                "numbers after {:?} in the names, {} to {}{}",
                run.before,
                run.first,
                run.first + run.step * run.n_layers - 1,
                if run.step > 1 {
                    format!(", {} to a layer", run.step)
                } else {
                    String::new()
                }
            );
        } else if let Some((first, n, _)) = by_roles {
            let patterns = patterns_of(&kept);
            for (name, _) in &kept {
                let numbered = numbers_in(name).into_iter().find(|one| {
                    let key = (one.before, one.after);
                    patterns
                        .get(&key)
                        .is_some_and(|numbers| is_list(numbers, first, n))
                });
                match numbered {
                    None => around.push(describe(name, (*name).to_owned(), name)),
                    Some(one) if one.number == first => {
                        let template =
                            format!("{}{}{}", one.before, written_hole(1, first), one.after);
                        in_layer.push(describe(
                            name,
                            template,
                            &format!("{} {}", one.before, one.after),
                        ));
                    }
                    Some(_) => {}
                }
            }
            n_layers = n;
            evidence = format!(
                "each part of a layer has a list of its own, {first} to {}",
                first + n - 1
            );
        } else {
            // No number repeats: there is one layer, and its tensors are among the others.
            in_layer = kept
                .iter()
                .map(|(name, _)| describe(name, (*name).to_owned(), name))
                .collect();
            n_layers = 1;
            evidence = "no number in the names repeats".to_owned();
        }
        in_layer.sort_by(|a, b| a.place.cmp(&b.place).then(a.name.cmp(&b.name)));
        around.sort_by(|a, b| a.place.cmp(&b.place).then(a.name.cmp(&b.name)));
        Self {
            n_layers,
            in_layer: with_joined_heads(in_layer),
            around,
            told,
            evidence,
        }
    }
}

/// Joins tensors that hold one head each into one, with `{head}` in its name.
fn with_joined_heads(tensors: Vec<Tensor>) -> Vec<Tensor> {
    let mut lists: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for (idx, tensor) in tensors.iter().enumerate() {
        for numbered in numbers_in(&tensor.name) {
            if numbered.before.ends_with("*layer+")
                || numbered.before.ends_with("{layer+")
                || numbered.before.ends_with('{')
            {
                continue;
            }
            let key = (numbered.before.to_owned(), numbered.after.to_owned());
            lists.entry(key).or_default().push(idx);
        }
    }
    let mut gone: Vec<usize> = Vec::new();
    let mut joined: BTreeMap<usize, Tensor> = BTreeMap::new();
    for ((before, after), members) in lists {
        let Some(first) = members.first().map(|idx| &tensors[*idx]) else {
            continue;
        };
        let are_alike = members.iter().all(|idx| tensors[*idx].shape == first.shape);
        let is_narrow = matches!(first.shape.as_slice(), [n_out, n_in] if n_out < n_in);
        let is_called_head = words_of(&before)
            .iter()
            .any(|word| word.starts_with("head"));
        let numbers: Vec<usize> = members
            .iter()
            .filter_map(|idx| {
                let name = &tensors[*idx].name;
                name.strip_prefix(before.as_str())?
                    .strip_suffix(after.as_str())?
                    .parse()
                    .ok()
            })
            .collect();
        let is_run = is_list(&numbers, 0, numbers.len());
        if members.len() < 2
            || !are_alike
            || !is_run
            || !(is_called_head || is_narrow)
            || first.shape.len() > 2
        {
            continue;
        }
        if members.iter().any(|idx| gone.contains(idx)) {
            continue;
        }
        gone.extend(&members);
        let n = members.len();
        let mut shape = first.shape.clone();
        if let Some(n_rows) = shape.first_mut() {
            *n_rows *= n;
        }
        let inner: Vec<String> = words_of(&after);
        let outer = first.words.clone();
        let tensor = Tensor {
            name: format!("{before}{HEAD}{after}"),
            words: [outer, inner].concat(),
            shape,
            place: first.place,
            mean: first.mean,
            n_joined: Some(n),
        };
        if let Some(idx) = members.first() {
            joined.insert(*idx, tensor);
        }
    }
    let all = tensors.into_iter().enumerate();
    all.filter_map(|(idx, tensor)| match joined.remove(&idx) {
        Some(joined) => Some(joined),
        None if gone.contains(&idx) => None,
        None => Some(tensor),
    })
    .collect()
}

/// Numbers found between the same two texts.
type Patterns<'a> = BTreeMap<(&'a str, &'a str), Vec<usize>>;

fn patterns_of<'a>(kept: &'a [(&'a str, Vec<usize>)]) -> Patterns<'a> {
    let mut patterns: Patterns<'a> = BTreeMap::new();
    let mut shapes: BTreeMap<(&str, &str), &[usize]> = BTreeMap::new();
    let mut mixed = Vec::new();
    for (name, shape) in kept {
        for one in numbers_in(name) {
            let key = (one.before, one.after);
            patterns.entry(key).or_default().push(one.number);
            if *shapes.entry(key).or_insert(shape) != shape.as_slice() {
                mixed.push(key);
            }
        }
    }
    mixed.iter().for_each(|key| {
        patterns.remove(key);
    });
    patterns
}

fn is_list(numbers: &[usize], first: usize, n: usize) -> bool {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.iter().copied().eq(first..first + n)
}

/// Lists of equal length that hold the most values: their first number, length and number of values.
fn lists(kept: &[(&str, Vec<usize>)]) -> Option<(usize, usize, usize)> {
    let mut held: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let patterns = patterns_of(kept);
    for (name, shape) in kept {
        let n: usize = shape.iter().product();
        let mut seen = Vec::new();
        for one in numbers_in(name) {
            let Some(numbers) = patterns.get(&(one.before, one.after)) else {
                continue;
            };
            let first = numbers.iter().copied().min().unwrap_or(0);
            let key = (first, numbers.len());
            if numbers.len() > 1 && is_list(numbers, first, numbers.len()) && !seen.contains(&key) {
                seen.push(key);
                *held.entry(key).or_default() += n;
            }
        }
    }
    let best = held
        .into_iter()
        .max_by_key(|((first, n), held)| (*held, *n, usize::MAX - first));
    best.map(|((first, n), held)| (first, n, held))
}

/// Run of numbers after one prefix that repeats the same tensors and holds the most values.
fn best_run<'a>(kept: &'a [(&'a str, Vec<usize>)]) -> Option<Run<'a>> {
    let mut groups: BTreeMap<&str, BTreeMap<usize, Signature<'a>>> = BTreeMap::new();
    for (name, shape) in kept {
        for one in numbers_in(name) {
            let of_number = groups
                .entry(one.before)
                .or_default()
                .entry(one.number)
                .or_default();
            of_number.push((one.after, shape));
        }
    }
    let n_of = |signature: &Signature<'_>| -> usize {
        signature
            .iter()
            .map(|(_, shape)| shape.iter().product::<usize>())
            .sum()
    };
    let n_matrices = |signatures: &[&Signature<'_>]| {
        let all = signatures.iter().flat_map(|signature| signature.iter());
        all.filter(|(_, shape)| shape.len() > 1).count()
    };
    let mut best: Option<Run<'a>> = None;
    for (before, of_numbers) in &groups {
        for first in of_numbers.keys().copied() {
            for step in 1..=4 {
                let one: Option<Vec<&Signature<'_>>> = (first..first + step)
                    .map(|number| of_numbers.get(&number))
                    .collect();
                let Some(one) = one else { break };
                let mut n_layers = 1;
                while (0..step).all(|idx| {
                    of_numbers
                        .get(&(first + step * n_layers + idx))
                        .is_some_and(|other| other == one[idx])
                }) {
                    n_layers += 1;
                }
                let n_elements =
                    n_layers * one.iter().map(|signature| n_of(signature)).sum::<usize>();
                // A layer has attention and more, so a number before a single matrix is not a layer number.
                if n_matrices(&one) < if n_layers > 1 { 2 } else { 4 } {
                    continue;
                }
                let is_better = best
                    .as_ref()
                    .is_none_or(|best| (n_elements, best.step) > (best.n_elements, step));
                if is_better {
                    best = Some(Run {
                        before,
                        first,
                        step,
                        n_layers,
                        n_elements,
                    });
                }
            }
        }
    }
    best
}

enum Buffer {
    No,
    Nothing,
    Told(Told),
}

/// Recognises masks, frequency tables and slopes, which training code stores but which are not weights.
fn buffer(tensors: &Tensors, name: &str, shape: &[usize], words: &[String]) -> Buffer {
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    let inner: Vec<usize> = shape.iter().copied().filter(|n| *n != 1).collect();
    let values = |most: usize| -> Option<Vec<f32>> {
        let view = tensors.get(name)?;
        (inner.iter().product::<usize>() <= most)
            .then(|| view.widen().ok().map(|v| v.into_owned()))?
    };
    match inner.as_slice() {
        [] => Buffer::Nothing,
        [n, m] if n == m => {
            let is_mask = values(1 << 20).is_some_and(|values| {
                let above = |idx: usize| idx % n > idx / n;
                let first = values.get(1).copied().unwrap_or(0.0);
                let below = values[0];
                values.iter().enumerate().all(|(idx, value)| {
                    if above(idx) {
                        *value == first
                    } else {
                        *value == below
                    }
                }) && first.to_bits() != below.to_bits()
            });
            if is_mask { Buffer::Nothing } else { Buffer::No }
        }
        [n] => {
            let Some(values) = values(4096).filter(|_| *n > 1) else {
                return Buffer::No;
            };
            let falls = values
                .windows(2)
                .all(|pair| pair[0] > pair[1] && pair[1] > 0.0);
            if values[0] == 1.0 && falls {
                let ratio = f64::from(values[1]);
                let even = values.iter().enumerate().all(|(idx, value)| {
                    (f64::from(*value).ln() - idx as f64 * ratio.ln()).abs() < 0.05
                });
                if even {
                    let theta = ratio.powf(-(*n as f64));
                    let digits = 10f64.powf(theta.log10().floor() - 2.0);
                    return Buffer::Told(Told::Rotary {
                        theta: (theta / digits).round() * digits,
                        d_rotary: 2 * n,
                    });
                }
            }
            if has(&["slopes", "slope", "alibi", "freqs", "freq"])
                || has(&["inv"]) && has(&["freq"])
            {
                return Buffer::Nothing;
            }
            Buffer::No
        }
        _ if has(&[
            "cos", "sin", "cached", "freqs", "mask", "tril", "rotary", "rope",
        ]) =>
        {
            Buffer::Nothing
        }
        _ => Buffer::No,
    }
}

fn mean_of(tensors: &Tensors, name: &str) -> f32 {
    let Some(info) = tensors.info(name) else {
        return 0.0;
    };
    let is_vector = info.shape.iter().filter(|n| **n != 1).count() == 1;
    if !is_vector {
        return 0.0;
    }
    let values = tensors.get(name).and_then(|view| view.widen().ok());
    values.map_or(0.0, |values| {
        values.iter().sum::<f32>() / values.len().max(1) as f32
    })
}
