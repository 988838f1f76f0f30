//! Runs chains of convolutions over the places of a picture, or the positions of a sequence.

use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::vectors::columns;
use attnscope_compute::ops::{Activation, Ops};
use attnscope_spec::{Chain, ChainStep, MomentConvolution, NormSource, PlaneConvolution};

use super::group_norm::norm_groups;
use super::planes::{Plane, convolve, convolve_by};
use super::weights::WeightReader;

/// What stands between two steps.
#[derive(Clone)]
struct Places {
    /// One plane for each moment.
    moments: Vec<Plane>,
    /// What steps kept for later ones.
    kept: Vec<Plane>,
}

/// Runs a chain on the places of a still picture, of which rows hold what earlier chains kept besides.
///
/// # Errors
/// When the picture is too small, a tensor differs from its spec, or the device fails.
pub(super) fn run_chain<O: Ops>(
    chain: &Chain,
    plane: &Plane,
    shelf: WeightReader<'_, O>,
) -> Result<Plane> {
    let mut places = apart(chain, plane);
    run_steps(chain, &mut places, shelf)?;
    together(places)
}

/// Some columns of a plane, as one of its own.
fn part(plane: &Plane, first: usize, n: usize) -> Plane {
    Plane {
        values: columns(&plane.values, plane.n_channels, first, n),
        n_channels: n,
        ..*plane
    }
}

/// What a chain reads, and what was kept beside it.
fn apart(chain: &Chain, plane: &Plane) -> Places {
    let mut at = chain.n_in;
    let kept = chain.kept.iter().map(|n| {
        let one = part(plane, at, *n);
        at += n;
        one
    });
    let kept = kept.collect();
    Places {
        moments: vec![part(plane, 0, chain.n_in)],
        kept,
    }
}

/// What a chain gives, and beside it what it keeps.
fn together(places: Places) -> Result<Plane> {
    let [plane] = &places.moments[..] else {
        let problem = "a chain of convolutions leaves several moments".to_owned();
        return Err(Error::Prompt(problem));
    };
    places
        .kept
        .iter()
        .try_fold(plane.clone(), |all, kept| beside(&all, kept))
}

/// The channels of two planes of the same places, one after the other.
fn beside(first: &Plane, second: &Plane) -> Result<Plane> {
    same_places(first, second)?;
    let [n_first, n_second] = [first, second].map(|plane| plane.n_channels.max(1));
    let pairs = first
        .values
        .chunks(n_first)
        .zip(second.values.chunks(n_second));
    let values = pairs.flat_map(|(first, second)| first.iter().chain(second).copied());
    Ok(Plane {
        values: values.collect(),
        n_channels: first.n_channels + second.n_channels,
        ..*first
    })
}

fn same_places(first: &Plane, second: &Plane) -> Result<()> {
    let [one, other] = [first, second].map(|plane| [plane.n_rows, plane.n_columns]);
    if one == other {
        return Ok(());
    }
    let problem = format!(
        "{} × {} places meet {} × {} that were kept before convolutions",
        one[1], one[0], other[1], other[0]
    );
    Err(Error::Prompt(problem))
}

/// Runs the steps of a chain on the places of each moment.
fn run_steps<O: Ops>(chain: &Chain, places: &mut Places, shelf: WeightReader<'_, O>) -> Result<()> {
    for step in &chain.steps {
        let (moments, kept) = (&mut places.moments, &mut places.kept);
        match step {
            ChainStep::Convolution(convolution) => over_each(moments, |plane| {
                let to = convolve(convolution, Activation::Identity, plane, shelf)?;
                not_empty(plane, to)
            })?,
            ChainStep::Map(map) => {
                let weights = shelf.linear(map)?;
                over_each(moments, |plane| {
                    in_buffer(plane, shelf, |from, to| {
                        shelf.ops.linear(from, &weights, to, shelf.pace)
                    })
                })?;
            }
            ChainStep::Norm(norm) => over_each(moments, |plane| normed(norm, plane, shelf))?,
            ChainStep::Activation(activation) => over_each(moments, |plane| {
                in_buffer(plane, shelf, |from, to| {
                    std::mem::swap(from, to);
                    shelf.ops.activate(*activation, to)
                })
            })?,
            ChainStep::Leaky(by) => {
                let values = moments.iter_mut().flat_map(|plane| &mut plane.values);
                values
                    .filter(|value| **value < 0.0)
                    .for_each(|value| *value *= by);
            }
            ChainStep::Sum(chains) => {
                let [branch, beside] = &**chains;
                let mut other = places.clone();
                run_steps(branch, places, shelf)?;
                run_steps(beside, &mut other, shelf)?;
                add(&mut places.moments, &other.moments)?;
            }
            ChainStep::Keep => kept.extend(moments.iter().cloned()),
            ChainStep::AddKept => {
                let last: Vec<Plane> = kept.pop().into_iter().collect();
                add(moments, &last)?;
            }
            ChainStep::BesideKept => {
                if let (Some(last), [plane]) = (kept.pop(), &mut moments[..]) {
                    *plane = beside(&last, plane)?;
                }
            }
            ChainStep::Squares(side) => over_each(moments, |plane| whole(plane, *side))?,
            ChainStep::Repeat(n) => {
                let times = moments.iter().flat_map(|plane| vec![plane.clone(); *n]);
                *moments = times.collect();
            }
            ChainStep::Moments(convolution) => {
                *moments = over_moments(convolution, moments, shelf)?;
            }
        }
    }
    Ok(())
}

fn over_each(moments: &mut [Plane], mut of: impl FnMut(&Plane) -> Result<Plane>) -> Result<()> {
    for plane in moments {
        *plane = of(plane)?;
    }
    Ok(())
}

fn add(moments: &mut [Plane], others: &[Plane]) -> Result<()> {
    for (sum, other) in moments.iter_mut().zip(others) {
        same_places(sum, other)?;
        let pairs = sum.values.iter_mut().zip(&other.values);
        pairs.for_each(|(sum, value)| *sum += value);
    }
    Ok(())
}

/// Refuses a plane without places.
fn not_empty(from: &Plane, to: Plane) -> Result<Plane> {
    if to.n_rows > 0 && to.n_columns > 0 {
        return Ok(to);
    }
    let problem = format!(
        "{} × {} places are too few for a convolution of the model",
        from.n_columns, from.n_rows
    );
    Err(Error::Prompt(problem))
}

/// Refuses places that are no whole squares.
fn whole(plane: &Plane, side: usize) -> Result<Plane> {
    let sides = [plane.n_rows, plane.n_columns];
    if sides.iter().all(|n| n.is_multiple_of(side)) {
        return Ok(plane.clone());
    }
    let problem = format!(
        "expected a picture of which convolutions make whole squares of {side} × {side} places, found {} × {} places",
        plane.n_columns, plane.n_rows
    );
    Err(Error::Prompt(problem))
}

/// Computes rows from the rows of a plane, on the device.
fn in_buffer<O: Ops>(
    plane: &Plane,
    shelf: WeightReader<'_, O>,
    of: impl FnOnce(&mut O::Buffer, &mut O::Buffer) -> Result<()>,
) -> Result<Plane> {
    let (mut from, mut to) = (O::Buffer::default(), O::Buffer::default());
    shelf.ops.put(&plane.values, plane.n_channels, &mut from)?;
    of(&mut from, &mut to)?;
    let host = shelf.ops.get(&to)?;
    Ok(Plane {
        n_channels: host.width,
        values: host.values.into_owned(),
        ..*plane
    })
}

fn normed<O: Ops>(norm: &NormSource, plane: &Plane, shelf: WeightReader<'_, O>) -> Result<Plane> {
    let weights = shelf.norm(norm)?;
    let mut grouped;
    let plane = match norm.groups {
        Some(n_groups) => {
            grouped = plane.clone();
            norm_groups((n_groups, norm.eps), norm.width, &mut grouped.values);
            &grouped
        }
        None => plane,
    };
    in_buffer(plane, shelf, |from, to| shelf.ops.norm(from, &weights, to))
}

/// Convolves over moments, which are beside each other as channels of a plane: each channel's moments follow one another.
fn over_moments<O: Ops>(
    spec: &MomentConvolution,
    moments: &[Plane],
    shelf: WeightReader<'_, O>,
) -> Result<Vec<Plane>> {
    let weight = shelf.tensors.expect(&spec.plane.weight, &spec.shape())?;
    let weight = weight.widen()?;
    let wide = PlaneConvolution {
        n_in: spec.plane.n_in * spec.n_wide,
        ..spec.plane.clone()
    };
    let Some(first) = moments.first() else {
        return Ok(Vec::new());
    };
    let stacked = |nth: usize| {
        let n_channels = first.n_channels;
        let mut values = vec![0.0; first.values.len() * spec.n_wide];
        for at in 0..spec.n_wide {
            let moment = (nth * spec.stride + at).checked_sub(spec.padding);
            let Some(plane) = moment.and_then(|moment| moments.get(moment)) else {
                continue;
            };
            let places = values.chunks_mut((n_channels * spec.n_wide).max(1));
            for (to, from) in places.zip(plane.values.chunks(n_channels.max(1))) {
                let own = to.iter_mut().skip(at).step_by(spec.n_wide.max(1));
                own.zip(from).for_each(|(to, value)| *to = *value);
            }
        }
        Plane {
            values,
            n_channels: n_channels * spec.n_wide,
            ..*first
        }
    };
    let of = |nth: usize| {
        let plane = stacked(nth);
        convolve_by(&wide, weight.clone(), Activation::Identity, &plane, shelf)
    };
    (0..spec.n_to(moments.len())).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plane(values: &[f32], n_channels: usize) -> Plane {
        Plane {
            values: values.to_vec(),
            n_rows: 1,
            n_columns: values.len() / n_channels,
            n_channels,
        }
    }

    #[test]
    fn what_chains_keep_stands_beside_what_they_give() {
        let chain = Chain {
            kept: vec![1, 2],
            ..Chain::plain(1, Vec::new())
        };
        let rows = plane(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 4);
        let places = apart(&chain, &rows);
        assert_eq!(places.moments, [plane(&[1.0, 5.0], 1)]);
        assert_eq!(places.kept[0], plane(&[2.0, 6.0], 1));
        assert_eq!(places.kept[1].values, [3.0, 4.0, 7.0, 8.0]);
        assert_eq!(together(places).expect("as many places"), rows);
        let said = beside(&rows, &plane(&[1.0], 1)).expect_err("fewer places");
        assert!(
            said.to_string().contains("2 × 1 places meet 1 × 1"),
            "{said}"
        );
    }
}
