//! Traces that PyTorch computed (`fixtures/captured/judged`): what is healthy stays so, and each bug has its name.

use attnscope_run::Declared;
use testing::judged::{captured, fixture};
use testing::made_traces::{accused, evidence};

/// File, checks that warn or accuse, and of one check a part of what it must say.
const FILES: &[(&str, &[&str], &str, &str)] = &[
    (
        "bug_across_batch.npz",
        &["wrong-axis"],
        "wrong-axis",
        "across the batch",
    ),
    (
        "bug_cross_causal.safetensors",
        &["mask-shape"],
        "mask-shape",
        "over the other sequence",
    ),
    (
        "bug_dropout_in_evaluation.safetensors",
        &["row-sum"],
        "row-sum",
        "0.1, in evaluation mode",
    ),
    (
        "bug_half_causal.safetensors",
        &["mask-shape"],
        "mask-shape",
        "sees later keys",
    ),
    (
        "bug_inverted.safetensors",
        &["mask-shape"],
        "mask-shape",
        "wrong way round",
    ),
    (
        "bug_masked_after.safetensors",
        &["pattern-mismatch", "row-sum"],
        "row-sum",
        "set to 0 afterwards",
    ),
    (
        "bug_next_token.safetensors",
        &["mask-shape"],
        "mask-shape",
        "next key as well",
    ),
    (
        "bug_one_nan.safetensors",
        &["nan-or-inf"],
        "nan-or-inf",
        "head 1: the score of query 5, key 3",
    ),
    (
        "bug_over_batch.safetensors",
        &["wrong-axis"],
        "wrong-axis",
        "the batch",
    ),
    (
        "bug_own_names.safetensors",
        &["mask-mass"],
        "mask-mass",
        "probs of layer 0",
    ),
    (
        "bug_own_hidden.safetensors",
        &["mask-shape"],
        "mask-shape",
        "its own position",
    ),
    (
        "bug_padding_inverted.safetensors",
        &["mask-shape", "pad-mass"],
        "mask-shape",
        "wrong way round",
    ),
    (
        "bug_temperature.safetensors",
        &["pattern-mismatch"],
        "pattern-mismatch",
        "times 0.3536",
    ),
    (
        "bug_top_left.safetensors",
        &["mask-shape"],
        "mask-shape",
        "from the first key",
    ),
    (
        "bug_twice.safetensors",
        &["entropy-uniform", "pattern-mismatch"],
        "pattern-mismatch",
        "applied twice",
    ),
    (
        "differential.safetensors",
        &[],
        "normaliser",
        "0.400 of another",
    ),
    (
        "learned_sinks.safetensors",
        &[],
        "normaliser",
        "learned sink of logit 0.4",
    ),
    ("left_padded_eager.safetensors", &[], "", ""),
    ("left_padded_eager_unsaid.safetensors", &[], "", ""),
    ("linear.safetensors", &[], "normaliser", "elu(x) + 1"),
    ("order_bqkh.npz", &[], "", ""),
    ("order_hbqk.npz", &[], "", ""),
    ("order_qkbh.npz", &[], "", ""),
    ("own_names.safetensors", &[], "", ""),
    ("prefix.safetensors", &[], "", ""),
    ("relu.safetensors", &[], "normaliser", "ReLU"),
    (
        "relu_squared.safetensors",
        &[],
        "normaliser",
        "squared ReLU divided by the number",
    ),
    (
        "sigmoid.safetensors",
        &[],
        "normaliser",
        "sigmoid of score -2.485",
    ),
    ("sinkhorn.safetensors", &[], "normaliser", "Sinkhorn"),
    ("softmax_one.safetensors", &[], "normaliser", "1 added"),
    ("sparsemax.safetensors", &[], "normaliser", "sparsemax"),
    ("talking_heads.safetensors", &[], "", ""),
    ("wait_3.safetensors", &[], "", ""),
];

#[test]
fn every_file_is_accused_of_what_is_wrong_with_it_and_of_nothing_else() {
    let mut wrong = Vec::new();
    let mut n_files = 0;
    for entry in std::fs::read_dir(fixture("captured/judged")).expect("the fixtures") {
        let path = entry.expect("an entry").path();
        n_files += 1;
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let expected = FILES.iter().find(|(file, ..)| *file == name);
        let (_, checks, check, part) = expected.unwrap_or_else(|| panic!("{name} is not expected"));
        let said = captured(&path, &Declared::default());
        if accused(&said) != *checks {
            wrong.push(format!(
                "{name}: {:#?}",
                said.findings().collect::<Vec<_>>()
            ));
        }
        if check.is_empty() {
            assert!(said.of("normaliser").findings.is_empty(), "{name}");
        } else if !evidence(&said, check).contains(part) {
            wrong.push(format!("{name}: {check}: {}", evidence(&said, check)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(n_files, FILES.len());
}
