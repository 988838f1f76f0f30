//! A real run whose hooks are all kept, and its layer reports.

use std::collections::BTreeMap;

use attnscope_checkpoint::Checkpoint;
use attnscope_checks::stats::LayerReport;
use attnscope_compute::ops::Cpu;
use attnscope_forward::{Input, Sequence};
use attnscope_run::{Layers, Options, Tap, WhatIf, with_what_ifs};
use attnscope_spec::Model;
use testing::oracle_tap::Collected;

/// One real run, whole.
pub struct Whole {
    pub model: Model,
    pub tokens: Vec<u32>,
    pub tokens_real: Vec<bool>,
    /// By trace name.
    tensors: BTreeMap<String, Vec<f32>>,
    pub layers: Vec<LayerReport>,
}

impl Whole {
    pub fn run(family: &str, what_if: Option<&str>, n: usize, real: Option<Vec<bool>>) -> Self {
        let directory = testing::root()
            .join("fixtures/oracle")
            .join(family)
            .join("model");
        let model = attnscope_families::read(Checkpoint::open(&directory).expect("opens"))
            .expect("is understood");
        let what_ifs: Vec<WhatIf> = what_if
            .iter()
            .map(|words| words.parse().expect(words))
            .collect();
        let model = model.with_spec(with_what_ifs(&model.spec, &what_ifs).expect("a change"));
        let sequence = Sequence {
            picture: None,
            tokens: (0..n).map(|i| ((i * i * 7 + 3 * i) % 23) as u32).collect(),
            positions: (0..n).collect(),
            real: real.clone(),
            ..Sequence::default()
        };
        let mut collected = Collected::default();
        let tap: Option<&mut dyn Tap> = Some(&mut collected);
        let options = Options {
            keep_bytes: None,
            predicts: false,
        };
        let mut keep = Layers::default();
        let input = Input {
            source: None,
            sequence,
        };
        attnscope_run::run(&Cpu, &model, &input, options, &mut keep, tap, &|| false).expect("runs");
        Self {
            model,
            tokens: input.sequence.tokens.clone(),
            tokens_real: real.unwrap_or(vec![true; n]),
            tensors: collected.finish(),
            layers: keep.0,
        }
    }

    /// A tensor as rows of f64.
    pub fn rows(&self, name: &str, width: usize) -> Vec<Vec<f64>> {
        let values = &self.tensors[name];
        let wide = |row: &[f32]| row.iter().map(|v| f64::from(*v)).collect();
        values.chunks(width).map(wide).collect()
    }

    pub fn d_model(&self) -> usize {
        self.model.spec.d_model
    }
}
