//! Selects the rows of a checkpoint for a sweep.

use std::ops::Range;

use attnscope_compute::error::Error;
use attnscope_spec::{ModelSpec, Place, Stack};
use clap::ArgGroup;

use super::WhatIfArgs;

/// Which rows.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("where").args(["at", "layer"]))]
pub struct PlaceArgs {
    /// Which place: L3, L3H7, encoder.L3H7, or a row of it: "L3H7 query 5"
    #[arg(long, value_name = "PLACE", requires = "checkpoint", conflicts_with_all = ["layer", "head", "query"])]
    at: Option<Place>,
    /// Which layer: 3, or encoder.3, decoder.3, cross.3 in models with an encoder
    #[arg(long, value_name = "L", value_parser = layer, requires = "checkpoint")]
    layer: Option<(Option<Stack>, usize)>,
    /// Which head [default: every head of the layer]
    #[arg(long, value_name = "H", requires = "checkpoint")]
    head: Option<usize>,
    /// Which query, counted from 0 [default: every query that is not padding]
    #[arg(long, value_name = "Q", requires = "checkpoint")]
    query: Option<usize>,
    #[command(flatten)]
    pub what_if: WhatIfArgs,
}

fn layer(text: &str) -> Result<(Option<Stack>, usize), String> {
    let refused = || format!("expected 3, encoder.3, decoder.3 or cross.3, found {text:?}");
    let (stack, number) = match text.split_once('.') {
        None => (None, text),
        Some((name, number)) => {
            let stacks = [Stack::Encoder, Stack::Decoder, Stack::Cross];
            let stack = stacks.into_iter().find(|s| s.label() == Some(name));
            (Some(stack.ok_or_else(refused)?), number)
        }
    };
    Ok((stack, number.parse().map_err(|_| refused())?))
}

/// Makes the error for an index that is out of range.
pub fn missing(what: &str, idx: usize, n: usize) -> Error {
    let last = n.saturating_sub(1);
    Error::Setting(format!("{what} {idx} does not exist: expected 0..{last}"))
}

impl PlaceArgs {
    /// Returns the requested head.
    pub fn head(&self) -> Option<usize> {
        self.at.map_or(self.head, |at| at.head_idx)
    }

    /// Returns the requested query.
    pub fn query(&self) -> Option<usize> {
        self.at.map_or(self.query, |at| at.query_idx)
    }

    /// # Errors
    /// When the model has no such layer or head.
    pub fn find(&self, spec: &ModelSpec) -> Result<(Stack, usize, Range<usize>), Error> {
        let grids = spec.grids();
        if let Some(place) = self.at {
            return place_in(spec, place);
        }
        let Some((asked, layer_idx)) = self.layer else {
            let problem = "--at: expected a place to sweep, such as L3 or L3H7";
            return Err(Error::Setting(problem.to_owned()));
        };
        // The default is the only stack, or the decoder.
        let stack = asked.unwrap_or(spec.main_grid());
        if !grids.contains(&stack) {
            let known: Vec<&str> = grids.iter().filter_map(|grid| grid.label()).collect();
            let known = if known.is_empty() {
                "layers of the only stack".to_owned()
            } else {
                known.join(", ")
            };
            let found = stack.label().unwrap_or("the only stack");
            return Err(Error::Setting(format!(
                "--layer: expected {known}, found {found}"
            )));
        }
        if layer_idx >= spec.n_layers(stack) {
            return Err(missing("layer", layer_idx, spec.n_layers(stack)));
        }
        let n_heads = spec.n_heads(stack, layer_idx);
        match self.head {
            Some(head_idx) if head_idx >= n_heads => Err(missing("head", head_idx, n_heads)),
            Some(head_idx) => Ok((stack, layer_idx, head_idx..head_idx + 1)),
            None => Ok((stack, layer_idx, 0..n_heads)),
        }
    }
}

/// # Errors
/// When the model has no such place, or no layer is named.
fn place_in(spec: &ModelSpec, place: Place) -> Result<(Stack, usize, Range<usize>), Error> {
    // The default is the only stack, or the decoder.
    let stack = place.stack.unwrap_or(spec.main_grid());
    let meant = Place {
        stack: Some(stack),
        ..place
    };
    meant
        .within(&spec.shape())
        .map_err(|reason| Error::Setting(format!("--at: {reason}")))?;
    let Some(layer_idx) = place.layer_idx else {
        let problem = format!("--at {place}: expected one layer, such as {place}.L3");
        return Err(Error::Setting(problem));
    };
    if place.key_idx.is_some() {
        let problem = format!("--at {place}: a row of scores has all keys; expected no key");
        return Err(Error::Setting(problem));
    }
    let n_heads = spec.n_heads(stack, layer_idx);
    let heads = place
        .head_idx
        .map_or(0..n_heads, |head_idx| head_idx..head_idx + 1);
    Ok((stack, layer_idx, heads))
}
