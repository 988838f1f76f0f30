//! Statistics of a text with padding before it: those of the text alone.

use attnscope_checkpoint::Checkpoint;
use attnscope_checks::stats::Stat;
use attnscope_compute::ops::Cpu;
use attnscope_forward::{Input, Sequence};
use attnscope_run::{Layers, Options};

#[test]
fn padding_before_a_text_changes_no_share_of_its_tokens() {
    let n_pads = 12;
    // Positions and tokens of the text are those that it has without pads.
    let run = |n_pads: usize| {
        let directory = testing::root().join("fixtures/oracle/gpt2/model");
        let model =
            attnscope_families::read(Checkpoint::open(&directory).expect("opens")).expect("reads");
        let token = |i: usize| ((i * i * 7 + 3 * i) % 23) as u32;
        let pads = std::iter::repeat_n(0, n_pads);
        let positions = std::iter::repeat_n(0, n_pads).chain(0..20);
        let sequence = Sequence {
            picture: None,
            tokens: pads.chain((0..20).map(token)).collect(),
            positions: positions.collect(),
            real: Some((0..n_pads + 20).map(|i| i >= n_pads).collect()),
            ..Sequence::default()
        };
        let input = Input {
            source: None,
            sequence,
        };
        let mut keep = Layers::default();
        let options = Options {
            keep_bytes: None,
            predicts: false,
        };
        attnscope_run::run(&Cpu, &model, &input, options, &mut keep, None, &|| false)
            .expect("runs");
        keep.0
    };
    let (alone, padded) = (run(0), run(n_pads));
    for (alone, padded) in alone.iter().zip(&padded) {
        for (head_idx, (alone, padded)) in alone.heads.iter().zip(&padded.heads).enumerate() {
            for stat in [
                Stat::PreviousMass,
                Stat::FirstKeyMass,
                Stat::DiagonalMass,
                Stat::InductionMass,
                Stat::DuplicateMass,
                Stat::MeanDistance,
                Stat::EntropyRelative,
            ] {
                let place = format!("head {head_idx} {stat:?}");
                let [alone, padded] = [alone, padded].map(|head| head.stats.of(stat));
                let apart = (alone - padded).abs();
                assert!(
                    apart <= 1e-5 * alone.abs() + 1e-6,
                    "{place}: {alone} {padded}"
                );
            }
            assert!(alone.stats.of(Stat::FirstKeyMass) > 0.0);
            assert_eq!(alone.kind, padded.kind);
        }
    }
}
