//! Statistics of recorded patterns whose documents are given.

use safetensors::SafeTensors;

use testing::checkpoint_copy::attnscope;

/// The mean over queries of what a matrix gives to keys of the other document.
fn across(pattern: &[f32], n: usize, second: usize) -> f64 {
    let foreign = |cell: usize| (cell / n >= second) != (cell % n >= second);
    let cells = pattern.iter().enumerate();
    let cells = cells.filter(|(cell, _)| foreign(*cell));
    cells.map(|(_, p)| f64::from(*p)).sum::<f64>() / n as f64
}

#[test]
fn probability_on_another_document_is_that_of_the_pattern() {
    let path = testing::root().join("fixtures/captured/window.safetensors");
    let path = path.to_str().expect("a path");
    let report = |flags: &[&str]| -> serde_json::Value {
        let output = attnscope(&[&["report", path, "--format", "json"][..], flags].concat());
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let stat = |report: &serde_json::Value, layer: usize, head: usize| {
        let head = &report["prompts"][0]["layers"][layer]["heads"][head];
        head["stats"]["document_mass"].clone()
    };
    let (with, without) = (report(&["--documents", "0,5"]), report(&[]));
    let bytes = std::fs::read(path).expect("reads");
    let file = SafeTensors::deserialize(&bytes).expect("tensors");
    for layer in 0..2 {
        let name = format!("blocks.{layer}.attn.pattern");
        let all: Vec<f32> = {
            let data = file.tensor(&name).expect("a pattern").data();
            let values = data
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
            values.collect()
        };
        let n = 12;
        for (head, pattern) in all.chunks(n * n).enumerate() {
            let found = stat(&with, layer, head).as_f64().expect("a number");
            let expected = across(pattern, n, 5);
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
            assert!(expected > 0.05);
            assert!(stat(&without, layer, head).is_null());
        }
    }
}
