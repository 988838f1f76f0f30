//! The result of running a model on a prompt, and its heads.

use std::collections::BTreeMap;
use std::sync::Arc;

use attnscope_checks::stats::{LayerReport, Stat};
use attnscope_compute::on_device;
use attnscope_forward::Input;
use attnscope_prompt::TokenizerLoss;
use attnscope_run::{HeadQuery, Judging, Kept, Outcome, head_detail};
use attnscope_spec::Stack;

use super::error::Error;
use super::judgement::Judgement;
use super::model::Model;

/// Statistics of every head on one prompt. Scores and patterns of a head are computed on request.
pub struct Run<'a> {
    pub(crate) model: &'a Model,
    pub(crate) input: Input,
    pub(crate) layers: Vec<LayerReport>,
    pub(crate) kept: Option<Arc<Kept>>,
    pub(crate) outcome: Outcome,
    pub(crate) lost: TokenizerLoss,
}

/// The scores and pattern of one head.
#[derive(Debug, Clone)]
pub struct Head {
    pub n_queries: usize,
    pub n_keys: usize,
    /// Number of queries that one cell of `scores` and `pattern` covers. It is above 1 for long prompts, where a cell has the
    /// largest value that it covers.
    pub queries_per_cell: usize,
    /// Number of keys that one cell covers.
    pub keys_per_cell: usize,
    /// Scaled q·k after bias and softcap, −inf where masked. // [query cell, key cell]
    pub scores: Vec<f32>,
    /// Softmax of the scores, 0 where masked. // [query cell, key cell]
    pub pattern: Vec<f32>,
}

impl Run<'_> {
    /// The tokens that ran; the decoder's if there is an encoder.
    pub fn tokens(&self) -> &[u32] {
        &self.outcome.tokens
    }

    /// Mean next-token loss in nats; `None` if the model predicts nothing.
    pub fn loss(&self) -> Option<f64> {
        self.outcome.predictions.as_ref()?.loss
    }

    /// A statistic of a head of the only stack or the decoder, by its id in `docs/statistics.md`; `None` if the statistic or the
    /// head does not exist, or the value is not defined.
    pub fn statistic(&self, id: &str, layer: usize, head: usize) -> Option<f64> {
        let stat = Stat::ALL.iter().find(|stat| stat.id() == id)?;
        let main = self.model.inner.spec.main_stack().stack;
        let mut of_main = self.layers.iter().filter(|report| report.stack == main);
        let report = of_main.find(|report| report.layer_idx == layer)?;
        let value = report.heads.get(head)?.stats.of(*stat);
        value.is_finite().then_some(value)
    }

    /// A head of the only stack or the decoder.
    ///
    /// # Errors
    /// When the layer or head does not exist, or cannot be computed again.
    pub fn head(&self, layer: usize, head: usize) -> Result<Head, Error> {
        self.head_of(self.model.inner.spec.main_stack().stack, layer, head)
    }

    /// A head of any stack: encoder, decoder or cross-attention.
    ///
    /// # Errors
    /// As for [`Run::head`].
    pub fn head_of(&self, stack: Stack, layer: usize, head: usize) -> Result<Head, Error> {
        let mut of_stack = self.layers.iter().filter(|report| report.stack == stack);
        let found = of_stack.find(|report| report.layer_idx == layer);
        let Some(report) = found else {
            return Err(Error::setting(format!("the run has no layer {layer}")));
        };
        let n_heads = report.heads.len();
        if head >= n_heads {
            return Err(Error::setting(format!(
                "layer {layer} has {n_heads} heads: expected one of them, found head {head}"
            )));
        }
        let Some(kept) = self.kept.as_ref() else {
            let problem = "the run kept no inputs of layers: no head can be computed";
            return Err(Error::setting(problem.to_owned()));
        };
        let query = HeadQuery {
            stack,
            layer_idx: layer,
            head_idx: head,
            hides_first_key: false,
            weighs_values: false,
        };
        let model = self.model;
        let detail = on_device!(model.device.open()?, ops => head_detail(
            &ops, &model.inner, &self.input, kept, query, &|| false,
        ))?;
        let (scores, pattern) = (detail.scores.finest(), detail.pattern.finest());
        Ok(Head {
            n_queries: detail.n_queries,
            n_keys: detail.n_keys,
            queries_per_cell: pattern.queries_per_cell,
            keys_per_cell: pattern.keys_per_cell,
            scores: scores.cells.clone(),
            pattern: pattern.cells.clone(),
        })
    }

    /// Runs all checks on this prompt and on modified copies of it.
    ///
    /// # Errors
    /// When the model cannot be run again.
    pub fn judge(&self) -> Result<Judgement, Error> {
        let model = self.model;
        let baselines = BTreeMap::new();
        let mut judging = Judging {
            thresholds: &model.thresholds,
            baselines: &baselines,
            wants: &|_| true,
            lost: self.lost,
            budget: attnscope_run::Budget::USUAL,
            told: &mut |_| {},
            pace: &|| false,
        };
        let prompts = [("prompt".to_owned(), self.input.clone())];
        let judged = on_device!(model.device.open()?, ops => attnscope_run::judge(
            &ops, &model.inner, &prompts, &mut judging,
        ))?;
        Ok(Judgement {
            verdicts: judged.verdicts,
        })
    }
}
