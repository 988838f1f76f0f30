//! The page of the catalogue of readings: the doc comments of the families' own files.

use std::fmt::Write as _;

use super::FAMILIES;

/// Introduction before the families' sections.
const INTRODUCTION: &str = "# Readings

After this page you know in which ways the check `trained-otherwise` reads the weights of a checkpoint, and which of these ways
it leaves out on large models. The page is generated from the families' own files.

A reading holds in all layers. In models of a single stack it is also tried in each layer alone, where the budget allows, unless
its section says otherwise; readings of the vocabulary concern the whole model. Some are also tried in single heads. In models with
cross-attention a softmax, a scale or an order of matrices holds in all attention, and is also tried in self-attention alone.

Layers that mix tokens by other means than attention (state spaces, convolutions, recurrences) run as they are declared, and
readings change the layers around them. Where a row holds several streams, where layers share keys, and where some tokens are
global, the readings are those that a configuration could state: axis, scale, mask, positions, norms and weights, but not the order
of heads inside a layer or what happens to its residual. LSTM translators have no readings.

Readings race: all of them on the first few positions, those that may still win on more. After the race each of the best is tried
together with all others, and the model is run without the parts that they change: a reading that does no more than silence
explains nothing.

What a race may cost is limited by `attnscope check --budget`, in seconds that count as 20 billion multiplications each, so that
every machine asks the same; without the flag it is 10 seconds. Nothing is left out while the first round with 16 positions needs
at most four tenths of the budget, 10¹⁰ multiplications, or about as many as two runs of the texts. Beyond that, readings are
left out in this order:

1. of a model that predicts better than word frequencies, readings that change which weights are used or how blocks are built;
2. single heads; models of more than 64 heads in all are never read head by head;
3. single layers, except for no causal mask, a softmax over queries, and no scale;
4. these three as well.

After each round, readings that may still win but cost too much to go on with are given up, the least promising ones first. The
last round of a large model has half of the positions, at least 128. The verdict says how many readings were left out or given up,
and what they would take.

How often that loses the right reading was measured on 79 small models (`fixtures/readings`), each read on three sets of eight
texts that it had not seen, 237 races in all. Of 222 races of models with a mistake 201 name it, 3 name it beside another, 2 name
a near one, 6 do not decide, and 1 says that the model is broken without a cause; 3 name two others (of a prefix that all
tokens see), and 6 find nothing, of two mistakes that hardly change the loss. None of 15 races of healthy models accuses.
";

/// Builds the documentation page from all families' sections.
pub fn readings_page() -> String {
    let mut all = INTRODUCTION.to_owned();
    for family in FAMILIES {
        let lines = family.source.lines();
        let lines = lines.take_while(|line| line.starts_with("//!"));
        let text: Vec<&str> = lines
            .map(|line| line.trim_start_matches("//!").trim_start_matches(' '))
            .collect();
        let _ = write!(all, "\n## {}\n\n{}\n", family.id, text.join("\n"));
    }
    all
}
