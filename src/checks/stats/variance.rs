//! The spread of scores, compared with the prediction from the head's norms under independence.

use super::{Compute, Gather, HeadEvidence, Span, Statistic, over_pairs};

const NULL: &str =
    "independent components give Var(q·k) = ‖q‖²‖k‖²/d on average; the 1/√d of Vaswani et al. 2017";

pub static OBSERVED: Statistic = Statistic {
    id: "score_var_observed",
    title: "score variance",
    unit: "",
    span: Span::Positive,
    low: "flat",
    high: "spread out",
    definition: "population variance of scale·q·k over visible pairs, after rope, before softcap, bias and mask",
    source: NULL,
    compute: Compute::Head(observed, Gather::Mean),
};

fn observed(head: &HeadEvidence<'_>) -> f64 {
    over_pairs(head.rows_seeing(1), |row| (row.raw_mean, row.raw_var)).1
}

pub static PREDICTED: Statistic = Statistic {
    id: "score_var_predicted",
    title: "predicted variance",
    unit: "",
    span: Span::Positive,
    low: "short q and k",
    high: "long q and k",
    definition: "scale² · mean over visible pairs of ‖q‖²‖k‖² / d_head",
    source: NULL,
    compute: Compute::Head(predicted, Gather::Mean),
};

fn predicted(head: &HeadEvidence<'_>) -> f64 {
    let (n_pairs, sum) = head.rows_seeing(1).fold((0.0, 0.0), |(n, sum), row| {
        let q_norm_sq = f64::from(row.q_norm) * f64::from(row.q_norm);
        (
            n + f64::from(row.n_visible),
            sum + q_norm_sq * f64::from(row.k_norm_sq_sum),
        )
    });
    let scale = f64::from(head.scale);
    scale * scale * sum / n_pairs / head.d_head as f64
}

pub static RATIO: Statistic = Statistic {
    id: "score_var_ratio",
    title: "variance ratio",
    unit: "",
    span: Span::Positive,
    low: "flatter than chance",
    high: "queries and keys are aligned",
    definition: "score_var_observed divided by score_var_predicted; trained heads are far from 1 by design",
    source: NULL,
    compute: Compute::Head(|head| observed(head) / predicted(head), Gather::Mean),
};
