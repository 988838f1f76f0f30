//! The data of the Tokens panel: attention from or to each token, and the model's predictions after each.

use attnscope_run::Predictions;

use attnscope_report::table::{Table, TableRow};

use super::{Figure, PanelData, selected_head};
use crate::panels::tokens_shades::{axes, selected, shares};
use crate::state::panel::Panel;
use crate::state::scene::Scene;
use crate::state::views::Axis;

pub static DATA: PanelData = PanelData {
    panel: Panel::Tokens,
    parts: &[
        (
            "token",
            "a token of the shaded text, and its probability in the selected head",
        ),
        (
            "prediction",
            "one of the three likeliest tokens after a position",
        ),
        (
            "text",
            "the whole text: mean loss and perplexity, where the model predicts the next token",
        ),
    ],
    columns: Row::COLUMNS,
    table: |app| Table::of(rows(app)),
};

placed_row! {
    position: Option<usize>, "position", "the token's";
    token: String, "", "the token";
    id: Option<u32>, "", "its id";
    query: Option<usize>, "position", "which query gives";
    key: Option<usize>, "position", "which key receives";
    probability: Option<Figure>, "probability", "how much; empty until the head is computed";
    max_of: Option<usize>, "tokens", "1, or past 4096 tokens the side of the tile whose largest probability it is";
    rank: Option<usize>, "", "1 for the likeliest";
    predicted_id: Option<u32>, "", "the predicted token's id";
    predicted_token: String, "", "the predicted token";
    predicted_probability: Option<Figure>, "probability", "its probability";
    loss: Option<Figure>, "nats", "−log of the probability of the token that follows; of the text: the mean over pairs of real tokens";
    perplexity: Option<Figure>, "", "e to the mean loss";
}

fn rows(app: Scene<'_>) -> Vec<Row> {
    let mut rows = tokens(app);
    let predictions = app
        .run()
        .and_then(|run| run.outcome())
        .and_then(|outcome| outcome.predictions.as_ref());
    if let Some(predictions) = predictions {
        rows.extend(predicted(app, predictions));
        rows.extend(predictions.loss.map(|loss| Row {
            part: "text",
            loss: Some(loss.into()),
            perplexity: Some(loss.exp().into()),
            ..Row::default()
        }));
    }
    rows
}

fn tokens(app: Scene<'_>) -> Vec<Row> {
    let (_, shaded) = axes(app);
    let values = shares(app);
    let token = |idx: usize| {
        let (query, key) = match shaded {
            Axis::Key => (selected(app), idx),
            Axis::Query => (idx, selected(app)),
        };
        Row {
            part: "token",
            position: Some(idx),
            token: app.raw_token(shaded, idx).to_owned(),
            id: app.token_id(shaded, idx),
            query: Some(query),
            key: Some(key),
            probability: values.as_ref().map(|values| values[idx].into()),
            max_of: app.shown_detail().map(|detail| detail.pooling()),
            ..Row::at(selected_head(app))
        }
    };
    (0..app.n_along(shaded)).map(token).collect()
}

/// Rows of predictions, for the only text or the decoder's.
fn predicted(app: Scene<'_>, predictions: &Predictions) -> Vec<Row> {
    let prompt = app.run().map(|run| &run.prompt);
    let at = |idx: usize| {
        let loss = predictions.next_loss.as_ref();
        let loss = loss.and_then(|losses| losses.get(idx)).copied();
        let token = prompt.and_then(|prompt| prompt.labels.get(idx));
        let id = prompt.and_then(|prompt| prompt.tokens.get(idx)).copied();
        let candidates = predictions.top[idx].iter().enumerate();
        candidates.map(move |(n, candidate)| Row {
            part: "prediction",
            position: Some(idx),
            token: token.cloned().unwrap_or_default(),
            id,
            rank: Some(n + 1),
            predicted_id: Some(candidate.id),
            predicted_token: app.vocabulary_label(candidate.id),
            predicted_probability: Some(candidate.probability.into()),
            loss: loss.map(Figure::from),
            ..Row::default()
        })
    };
    (0..predictions.top.len()).flat_map(at).collect()
}
