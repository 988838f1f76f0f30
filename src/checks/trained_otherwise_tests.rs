//! Verdicts of `trained-otherwise` on given losses.

use attnscope_spec::{Place, Stack};

use super::trained_otherwise::CHECK;
use super::{
    Evidence, Probed, Probes, SeesLabels, Severity, Status, Subject, TestedHypothesis, Thresholds,
    TrainingHypothesis, TrainingProbe, Verdict,
};

fn noisy(n: usize, mean: f32, spread: f32) -> Vec<f32> {
    let loss = |i: usize| mean + spread * (((i * 7919) % 101) as f32 / 50.0 - 1.0);
    (0..n).map(loss).collect()
}

fn reading(family: &'static str, name: &str, losses: Vec<f32>) -> TestedHypothesis {
    TestedHypothesis {
        hypothesis: TrainingHypothesis {
            family,
            name: name.to_owned(),
            parts: Vec::new(),
            advice: "--set softmax_axis=queries".to_owned(),
            is_of_layers: true,
            layer_idx: None,
            head_idx: None,
            sees_labels: SeesLabels::Not,
            smooths: false,
            shown_by: None,
        },
        order: 0,
        losses,
        round: 0,
        of_beginnings: Vec::new(),
        silenced: None,
        by_embedding: None,
    }
}

impl TestedHypothesis {
    fn with_changes(mut self, change: impl FnOnce(&mut TrainingHypothesis)) -> Self {
        change(&mut self.hypothesis);
        self
    }
}

/// A verdict on texts of 200 tokens where a window helps from some token on; `near` is its gain in the beginnings.
fn of_long_texts(near: f32, n_texts: usize) -> Verdict {
    const FROM: usize = 64;
    let all = |of: &dyn Fn(usize) -> f32| -> Vec<f32> {
        let noise = noisy(200 * n_texts, 0.0, 0.3);
        let places = (0..200 * n_texts).map(|idx| idx % 200);
        places
            .zip(noise)
            .map(|(place, noise)| of(place) + noise)
            .collect()
    };
    let far = |place: usize| if place < FROM { 0.0 } else { 1.0 };
    let declared = all(&|place| 1.0 + far(place));
    let losses = all(&|place| 1.0 + 0.3 * far(place) - if place < FROM { near } else { 0.0 });
    let mut window = reading("mask", "a window of 64 keys", losses);
    window.of_beginnings = noisy(32 * n_texts, 1.0 - near, 0.4);
    let probes = Probes {
        training: Probed::Ran(TrainingProbe {
            added: None,
            noise: None,
            tells_next: true,
            places: (0..200 * n_texts).map(|idx| idx % 200).collect(),
            declared: vec![declared],
            of_beginnings: noisy(32 * n_texts, 1.0, 0.3),
            readings: vec![window],
            n_left_out: 0,
            seconds_left_out: 0.0,
            unigram_loss: 3.0,
            pair_loss: 9.0,
            copy_loss: 9.0,
        }),
        ..Probes::none("not run")
    };
    let mut evidence = Evidence::of_layers(Subject::Checkpoint, &[], &probes, 1e-5);
    evidence.n_ctx = Some(256);
    (CHECK.judge)(&evidence, &Thresholds::default())
}

#[test]
fn a_reading_that_gains_only_in_long_texts_is_information_with_the_length() {
    let told = of_long_texts(0.0, 8);
    let [finding] = &told.findings[..] else {
        panic!("{told:?}");
    };
    assert_eq!(finding.severity, Severity::Info);
    assert!(
        finding.evidence.contains("beyond about 64 tokens"),
        "{finding:?}"
    );
    assert!(finding.advice.contains("the 256 positions"), "{finding:?}");
    // A reading that gains in beginnings too is an error.
    let accused = of_long_texts(0.5, 8);
    assert_eq!(accused.findings[0].severity, Severity::Error, "{accused:?}");
    assert!(
        accused.findings[0]
            .advice
            .contains("trained or loaded with a window")
    );
    // A small gain in beginnings on few positions decides nothing.
    let open = of_long_texts(0.12, 1);
    assert_eq!(open.status, Status::Undecidable, "{open:?}");
    assert!(open.why.contains("in the first 32 tokens"), "{}", open.why);
}

fn verdict(
    declared: Vec<f32>,
    readings: Vec<TestedHypothesis>,
    unigram_loss: f64,
    copy_loss: f64,
) -> Verdict {
    let probes = Probes {
        training: Probed::Ran(TrainingProbe {
            added: None,
            noise: None,
            tells_next: true,
            places: (0..declared.len()).collect(),
            declared: vec![declared],
            of_beginnings: Vec::new(),
            readings,
            n_left_out: 7,
            seconds_left_out: 90.0,
            unigram_loss,
            pair_loss: 9.0,
            copy_loss,
        }),
        ..Probes::none("not run")
    };
    let subject = Subject::Checkpoint;
    let evidence = Evidence::of_layers(subject, &[], &probes, 1e-5);
    (CHECK.judge)(&evidence, &Thresholds::default())
}

#[test]
fn a_clear_gain_is_an_error_and_a_noisy_or_small_one_is_not() {
    let of = |n, gain: f32, spread| {
        let other = reading(
            "axis",
            "a softmax over queries",
            noisy(n, 2.0 - gain, spread),
        );
        verdict(noisy(n, 2.0, 0.1), vec![other], 3.0, 9.0)
    };
    let accused = of(400, 0.5, 0.3);
    assert_eq!(accused.status, Status::Fired, "{accused:?}");
    assert!(
        accused.findings[0]
            .evidence
            .contains("softmax over queries")
    );
    assert!(
        accused.findings[0]
            .advice
            .contains("--set softmax_axis=queries")
    );
    let passed = of(400, 0.02, 0.1);
    assert_eq!(passed.status, Status::Passed);
    assert!(passed.why.contains("7 more readings"), "{}", passed.why);
    // The same gain with more noise: more positions are needed.
    let noisy = of(40, 0.1, 3.0);
    assert_eq!(noisy.status, Status::Undecidable);
    assert!(noisy.why.contains("more positions"), "{}", noisy.why);
    assert!(noisy.why.contains("7 more readings"), "{}", noisy.why);
    // A gain close to the margin also needs more positions, however certain the gain is.
    assert_eq!(of(40, 0.045, 0.2).status, Status::Undecidable);
    assert_eq!(of(10, 0.5, 0.1).status, Status::Undecidable);
}

#[test]
fn a_reading_that_sees_labels_counts_only_if_the_model_reads_them_off() {
    let of = |sees_labels, loss, declared, unigram_loss, copy_loss| {
        let other = reading("mask", "no causal mask", noisy(400, loss, 0.01))
            .with_changes(|hypothesis| hypothesis.sees_labels = sees_labels);
        verdict(
            noisy(400, declared, 0.1),
            vec![other],
            unigram_loss,
            copy_loss,
        )
        .status
    };
    use SeesLabels::{Faintly, Plainly};
    // A model that copies finds the visible label; one that was trained to see it finds it far better.
    assert_eq!(of(Plainly, 0.1, 4.0, 3.0, 0.2), Status::Undecidable);
    assert_eq!(of(Plainly, 0.1, 2.0, 3.0, 0.2), Status::Passed);
    assert_eq!(of(Plainly, 0.1, 4.0, 3.0, 2.9), Status::Fired);
    assert_eq!(of(Plainly, 0.5, 4.0, 3.0, 2.9), Status::Undecidable);
    assert_eq!(of(Faintly, 1.5, 4.0, 3.0, 2.9), Status::Fired);
    assert_eq!(of(Faintly, 1.5, 2.0, 3.0, 2.9), Status::Passed);
}

#[test]
fn own_labels_count_only_if_layers_tell_them_and_not_the_embedding_alone() {
    let of = |by_embedding: f64| {
        let mut own = reading("labels", "labels that were not shifted", vec![0.1; 400])
            .with_changes(|hypothesis| hypothesis.sees_labels = SeesLabels::Plainly);
        own.by_embedding = Some(by_embedding);
        verdict(noisy(400, 9.0, 0.1), vec![own], 3.0, 9.0).status
    };
    assert_eq!(of(1.5), Status::Fired);
    assert_eq!(of(0.12), Status::Fired);
    assert_eq!(of(0.1), Status::Undecidable);
    assert_eq!(of(0.001), Status::Undecidable);
}

#[test]
fn advice_runs_the_model_as_trained_only_where_that_explains_most_of_what_is_missing() {
    let of = |loss: f32| {
        let cause = reading("axis", "a softmax over queries", noisy(400, loss, 0.1));
        let said = verdict(noisy(400, 8.0, 0.1), vec![cause], 3.0, 9.0);
        (
            said.explains.expect("measured"),
            said.findings[0].advice.clone(),
        )
    };
    // All of it: the loss of a trained model is below 0.9 of what word frequencies lose.
    let (explained, advice) = of(1.0);
    assert!((explained.share() - 1.0).abs() < 1e-9, "{explained:?}");
    assert!(advice.contains("--set softmax_axis=queries"), "{advice}");
    // Not below word frequencies: 8.0 − 2.9 of 8.0 − 2.7.
    let (explained, advice) = of(2.9);
    assert!((explained.nats - 5.1).abs() < 0.05 && (explained.of - 5.3).abs() < 0.05);
    assert!(!advice.contains("--set"), "{advice}");
}

#[test]
fn only_a_rival_of_another_family_leaves_the_cause_undecided() {
    let of = |family, gain: f32| {
        let best = reading("axis", "a softmax over queries", noisy(400, 1.0, 0.1));
        let rival = reading(family, "another", noisy(400, 2.0 - gain, 0.1));
        verdict(noisy(400, 2.0, 0.1), vec![best, rival], 3.0, 9.0)
            .findings
            .remove(0)
    };
    assert!(of("block", 0.8).advice.contains("not decided between"));
    assert!(!of("block", 0.7).advice.contains("not decided"));
    assert!(!of("axis", 0.8).advice.contains("not decided"));
}

#[test]
fn a_smaller_scale_is_believed_only_if_no_other_reading_is_close() {
    let of = |rival: f32, declared: f32, loss: f32| {
        let best = reading("scale", "half the scale", noisy(400, loss, 0.1))
            .with_changes(|hypothesis| hypothesis.smooths = true);
        let rival = reading(
            "block",
            "another",
            noisy(400, declared - rival * (declared - loss), 0.1),
        );
        verdict(noisy(400, declared, 0.1), vec![best, rival], 3.0, 9.0)
    };
    assert!(
        of(0.2, 2.0, 1.5).findings[0]
            .advice
            .contains("half the scale")
    );
    assert_eq!(of(0.9, 2.0, 1.5).status, Status::Undecidable);
    let broken = of(0.9, 4.0, 2.5);
    assert!(
        broken.findings[0].advice.contains("not among them"),
        "{broken:?}"
    );
    // The loss of a trained model: both readings are named.
    let open = of(0.9, 4.0, 1.5);
    let advice = &open.findings[0].advice;
    assert!(advice.contains("not decided between"), "{advice}");
    // No better than word frequencies: no cause is given.
    assert_eq!(of(0.2, 4.0, 3.1).status, Status::Undecidable);
    // A loss only a little better than word frequencies is not that of a trained model.
    assert!(
        of(0.2, 4.0, 2.9).findings[0]
            .advice
            .contains("not among them")
    );
}

#[test]
fn a_combination_of_two_readings_is_named_only_if_both_are_needed() {
    let of = |alone: f32| {
        let name = "a softmax over queries and no scale";
        let parts = ["a softmax over queries", "no scale"].map(str::to_owned);
        let both = reading("several", name, noisy(400, 1.0, 0.05))
            .with_changes(|hypothesis| hypothesis.parts = parts.to_vec());
        let one = reading("axis", "a softmax over queries", noisy(400, alone, 0.05));
        verdict(noisy(400, 2.0, 0.1), vec![both, one], 3.0, 9.0)
            .findings
            .remove(0)
    };
    assert!(
        !of(1.02).evidence.contains("no scale"),
        "{}",
        of(1.02).evidence
    );
    let both = of(1.4);
    assert!(both.evidence.contains("and no scale"), "{}", both.evidence);
    assert!(!both.advice.contains("not decided"), "{}", both.advice);
}

#[test]
fn readings_with_equal_losses_are_named_together_and_equally_good_places_leave_it_open() {
    let best = reading("position", "no rotary positions", noisy(400, 1.0, 0.1));
    let twin = TestedHypothesis {
        order: 1,
        ..reading("position", "rotary positions by head", noisy(400, 1.0, 0.1))
    };
    let found = verdict(noisy(400, 2.0, 0.1), vec![best, twin], 3.0, 9.0)
        .findings
        .remove(0);
    assert!(
        found
            .evidence
            .contains("the same as rotary positions by head"),
        "{}",
        found.evidence
    );
    let in_layer = |layer_idx, loss| {
        reading("mask", "no causal mask", noisy(400, loss, 0.1))
            .with_changes(|hypothesis| hypothesis.layer_idx = Some(layer_idx))
    };
    let of = |other| {
        let all = vec![in_layer(1, 1.0), in_layer(0, other)];
        verdict(noisy(400, 2.0, 0.1), all, 3.0, 9.0)
            .findings
            .remove(0)
    };
    assert_eq!(of(1.5).place, Place::layer(Stack::Only, 1));
    assert_eq!(of(1.01).place, Place::MODEL);
}

#[test]
fn a_text_with_few_different_tokens_is_undecidable() {
    let other = reading("axis", "a softmax over queries", noisy(400, 0.1, 0.01));
    let dull = verdict(noisy(400, 1.0, 0.1), vec![other], 1.2, 9.0);
    assert_eq!(dull.status, Status::Undecidable);
    assert!(dull.why.contains("few tokens"), "{}", dull.why);
}
