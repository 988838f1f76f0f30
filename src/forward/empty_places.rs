//! Vectors per distance in rows and columns of a picture, and windows with empty places: keys and values that hold biases alone.

use attnscope_compute::attention::{
    HeadSummary, RelativeTables, Run, SoftmaxAxis, StepTables, ValueBias,
};
use attnscope_compute::error::{Error, Result};
use attnscope_compute::kernels::NumberFormat;
use attnscope_compute::ops::Ops;
use attnscope_spec::{LinearSource, PairValues, ProjectionSpec, StepSource, ValueBiasSource};

use super::rounded::round_read;
use super::weights::WeightReader;

/// Pairs of a query and a key for which a softmax over heads holds a value: 1 GiB of them.
const MOST_PAIRS: usize = 1 << 28;

impl<'a, O: Ops> WeightReader<'a, O> {
    /// Reads what the learned bias of an attention is made of, beside a table of buckets.
    pub(super) fn distances(
        self,
        spec: &ProjectionSpec,
        format: Option<NumberFormat>,
    ) -> Result<Option<RelativeTables>> {
        if let Some(made) = &spec.value_bias {
            return Ok(Some(RelativeTables {
                of_values: Some(self.value_bias(made)?),
                ..RelativeTables::default()
            }));
        }
        match (&spec.relative, &spec.steps) {
            (Some(relative), _) => self.relative(relative, format).map(Some),
            (None, Some(steps)) => Ok(Some(RelativeTables {
                steps: self.steps(steps, spec, format)?,
                ..RelativeTables::default()
            })),
            (None, None) => Ok(None),
        }
    }

    fn value_bias(self, made: &ValueBiasSource) -> Result<ValueBias> {
        let map = self.on_host(&made.map)?;
        let strengths = self.vector(&made.strengths, map.n_out)?;
        Ok(ValueBias {
            weights: map.widened().into_owned(),
            strengths: strengths.into_owned(),
            biases: map.bias.map(|bias| bias.into_owned()),
        })
    }

    fn steps(
        self,
        steps: &StepSource,
        spec: &ProjectionSpec,
        format: Option<NumberFormat>,
    ) -> Result<StepTables> {
        let bias = |map: &LinearSource| -> Result<Vec<f32>> {
            if !steps.has_empty_places || map.bias.is_none() {
                return Ok(Vec::new());
            }
            let bias = self.on_host(map)?.bias;
            Ok(bias.map_or_else(Vec::new, |bias| bias.into_owned()))
        };
        let [rows, columns] = match &steps.tables {
            Some([rows, columns]) => [
                round_read(self.table(rows)?, format).into_owned(),
                round_read(self.table(columns)?, format).into_owned(),
            ],
            None => Default::default(),
        };
        let pairs = match &steps.pairs {
            Some(PairValues::Stored(table)) => round_read(self.table(table)?, format).into_owned(),
            Some(PairValues::Made(network)) => self.made_values(network)?,
            None => Vec::new(),
        };
        Ok(StepTables {
            rows,
            columns,
            pairs,
            empty_key: bias(&spec.k)?,
            empty_value: bias(&spec.v)?,
        })
    }
}

/// Runs an attention of which empty places may take probability: they hold the bias of values, and so give it.
pub(super) fn attend_beside_empty<O: Ops>(
    ops: &O,
    run: &Run<'_>,
    [q, k, v]: [&O::Buffer; 3],
    z: &mut O::Buffer,
) -> Result<Vec<HeadSummary>> {
    let spec = run.spec;
    let n_pairs = run.visibility.n_queries_to_run() * run.visibility.n_keys;
    if spec.softmax_axis == SoftmaxAxis::Heads && n_pairs > MOST_PAIRS {
        return Err(Error::Prompt(format!(
            "a softmax over heads holds a value for each pair of a query and a key: expected at most {MOST_PAIRS} pairs, found {n_pairs}"
        )));
    }
    let empty = run.relative.map(|tables| &tables.steps.empty_value[..]);
    let Some(empty) =
        empty.filter(|empty| !empty.is_empty() && spec.softmax_axis == SoftmaxAxis::Keys)
    else {
        return ops.attend(run, q, k, v, z);
    };
    // The probabilities of a row sum to 1, those of empty places included: what all values have in common is added at the end.
    let host = ops.get(v)?;
    let (width, mut values) = (host.width, host.values.into_owned());
    for row in values.chunks_mut(width.max(1)) {
        row.iter_mut().zip(empty).for_each(|(v, own)| *v -= own);
    }
    let mut less = O::Buffer::default();
    ops.put_own(values, width, &mut less)?;
    let summaries = ops.attend(run, q, k, &less, z)?;
    let host = ops.get(z)?;
    let (width, mut rows) = (host.width, host.values.into_owned());
    for row in rows.chunks_mut(width.max(1)) {
        // Other heads stay 0: they run by themselves, and are added.
        for head_idx in run.heads.clone() {
            let to = &mut row[head_idx * spec.d_value..][..spec.d_value];
            let own = &empty[spec.kv_head_of(head_idx) * spec.d_value..];
            to.iter_mut().zip(own).for_each(|(z, own)| *z += own);
        }
    }
    ops.put_own(rows, width, z)?;
    Ok(summaries)
}
