//! Linear maps of a layer: every way in which its matrices can be queries, keys, values, output and feed-forward block.

use attnscope_families::description::{Axis, FusedPart, MapPart, Mlp, Per, Qkv};

use super::groups::{Groups, MapGroup, NormGroup};
use attnscope_families::description::names::{Role, score};

/// One assignment of a layer's matrices.
#[derive(Debug, Clone)]
pub struct LayerMaps {
    pub qkv: Qkv,
    pub o: MapPart,
    pub mlp: Mlp,
    pub down: MapPart,
    pub d_q: usize,
    pub d_kv: usize,
    /// Head width, if an axis determines it.
    pub d_head: Option<usize>,
    pub score: i32,
    pub left: Vec<String>,
}

/// Maps that are used, how they form queries, keys and values, number of key rows, head width, and a score.
type QkvWay = (Vec<usize>, Qkv, usize, Option<usize>, i32);

impl LayerMaps {
    pub fn is_gated(&self) -> bool {
        !matches!(self.mlp, Mlp::Plain(_))
    }

    /// Norms that fit the residual or the heads of the layer.
    pub fn norms(&self, groups: &Groups, d_model: usize) -> Vec<NormGroup> {
        let is_one = |norm: &&NormGroup| {
            norm.width == d_model
                || self.d_q.is_multiple_of(norm.width.max(1))
                || self.d_kv.is_multiple_of(norm.width.max(1))
        };
        groups.norms.iter().filter(is_one).cloned().collect()
    }
}

/// One interpretation of a stored tensor's axes as a map from or to the residual.
#[derive(Debug, Clone)]
struct Reading {
    axes: Vec<Axis>,
    n_in: usize,
    n_out: usize,
    d_head: Option<usize>,
    n_parts: Option<usize>,
}

/// Interpretations of a tensor that reads the residual.
fn reading_residual(shape: &[usize], d_model: usize, n_joined: Option<usize>) -> Vec<Reading> {
    use Axis::{Head, In, Out, Part};
    let product: usize = shape.iter().product();
    let whole = |axes: Vec<Axis>, d_head, n_parts| Reading {
        axes,
        n_in: d_model,
        n_out: product / d_model.max(1),
        d_head,
        n_parts,
    };
    match *shape {
        [n_out, n_in] => {
            let of_joined = n_joined.map(|n| n_out / n.max(1));
            let mut all = Vec::new();
            if n_in == d_model {
                all.push(whole(vec![Out, In], of_joined, None));
            }
            if n_out == d_model && n_joined.is_none() {
                all.push(whole(vec![In, Out], None, None));
            }
            all
        }
        [a, b, c] => {
            let parts = |n: usize| (n == 2 || n == 3).then_some(n);
            let mut all = Vec::new();
            if c == d_model {
                all.extend(parts(a).map(|n| whole(vec![Part, Out, In], None, Some(n))));
                all.push(whole(vec![Head, Out, In], Some(b), None));
            }
            if b == d_model {
                all.extend(parts(a).map(|n| whole(vec![Part, In, Out], None, Some(n))));
                all.push(whole(vec![Head, In, Out], Some(c), None));
            }
            if a == d_model {
                all.extend(parts(b).map(|n| whole(vec![In, Part, Out], None, Some(n))));
                all.push(whole(vec![In, Head, Out], Some(c), None));
            }
            all
        }
        [a, b, c, d] => {
            let mut all = Vec::new();
            let n_in = [a, b, c, d];
            for (at, n) in n_in.iter().enumerate().filter(|(_, n)| **n == d_model) {
                let _ = n;
                let rest: Vec<usize> = (0..4).filter(|idx| *idx != at).collect();
                let orders: [[Axis; 3]; 3] =
                    [[Part, Head, Out], [Head, Part, Out], [Head, Out, Part]];
                for order in orders {
                    let mut axes = vec![In; 4];
                    rest.iter()
                        .zip(order)
                        .for_each(|(idx, axis)| axes[*idx] = axis);
                    let of = |wanted: Axis| {
                        axes.iter()
                            .position(|axis| *axis == wanted)
                            .map(|idx| n_in[idx])
                    };
                    let n_parts = of(Part).filter(|n| *n == 2 || *n == 3);
                    if n_parts.is_some() {
                        all.push(whole(axes.clone(), of(Out), n_parts));
                    }
                }
            }
            all
        }
        _ => Vec::new(),
    }
}

/// Interpretations of a tensor that writes to the residual.
fn writing_residual(shape: &[usize], d_model: usize) -> Vec<Reading> {
    use Axis::{Head, In, Out};
    let product: usize = shape.iter().product();
    let whole = |axes: Vec<Axis>, d_head| Reading {
        axes,
        n_in: product / d_model.max(1),
        n_out: d_model,
        d_head,
        n_parts: None,
    };
    let mut all = Vec::new();
    match *shape {
        [a, b] => {
            if a == d_model {
                all.push(whole(vec![Out, In], None));
            }
            if b == d_model {
                all.push(whole(vec![In, Out], None));
            }
        }
        [a, b, c] => {
            if c == d_model {
                all.push(whole(vec![Head, In, Out], Some(b)));
            }
            if a == d_model {
                all.push(whole(vec![Out, Head, In], Some(c)));
            }
            if b == d_model {
                all.push(whole(vec![Head, Out, In], Some(c)));
            }
        }
        _ => {}
    }
    all
}

/// All assignments of the matrices, most likely first.
pub fn layer_maps(groups: &Groups, d_model: usize, most: usize) -> Vec<LayerMaps> {
    let n = groups.maps.len();
    if n > 12 {
        return Vec::new();
    }
    let search = Search { groups, d_model };
    let mut found = Vec::new();
    for o_idx in 0..n {
        for o in writing_residual(&groups.maps[o_idx].weight.shape, d_model) {
            for down_idx in (0..n).filter(|idx| *idx != o_idx) {
                for down in writing_residual(&groups.maps[down_idx].weight.shape, d_model) {
                    if groups.maps[down_idx].weight.shape.len() > 2 {
                        continue;
                    }
                    let rest: Vec<usize> = (0..n)
                        .filter(|idx| ![o_idx, down_idx].contains(idx))
                        .collect();
                    search.inside((o_idx, &o), (down_idx, &down), &rest, &mut found);
                }
            }
        }
    }
    found.sort_by_key(|maps| std::cmp::Reverse(maps.score));
    dedup(&mut found);
    found.truncate(most);
    found
}

/// Removes assignments that differ only in the orientation of square matrices, which the search tries itself.
fn dedup(found: &mut Vec<LayerMaps>) {
    let mut seen: Vec<String> = Vec::new();
    found.retain(|maps| {
        let mut names = vec![maps.o.weight.clone(), maps.down.weight.clone()];
        match &maps.qkv {
            Qkv::Separate(all) => names.extend(all.iter().map(|map| map.weight.clone())),
            Qkv::Paired(q, kv) => names.extend([q.weight.clone(), kv.map.weight.clone()]),
            Qkv::Fused(fused) => names.push(fused.map.weight.clone()),
        }
        match &maps.mlp {
            Mlp::Plain(up) => names.push(up.weight.clone()),
            Mlp::Gated(gate, up) => names.extend([gate.weight.clone(), up.weight.clone()]),
            Mlp::Fused(fused) => names.push(format!("fused {}", fused.map.weight)),
        }
        let key = names.join("|");
        let is_new = !seen.contains(&key);
        if is_new {
            seen.push(key);
        }
        is_new
    });
}

struct Search<'a> {
    groups: &'a Groups,
    d_model: usize,
}

impl Search<'_> {
    fn inside(
        &self,
        (o_idx, o): (usize, &Reading),
        (down_idx, down): (usize, &Reading),
        rest: &[usize],
        found: &mut Vec<LayerMaps>,
    ) {
        let (d_q, d_mlp) = (o.n_in, down.n_in);
        for (mlp_members, mlp, mlp_score) in self.mlps(rest, d_mlp) {
            let others: Vec<usize> = rest
                .iter()
                .copied()
                .filter(|idx| !mlp_members.contains(idx))
                .collect();
            for (members, qkv, d_kv, d_head, qkv_score) in self.qkvs(&others, d_q) {
                let left: Vec<String> = others
                    .iter()
                    .filter(|idx| !members.contains(idx))
                    .map(|idx| self.groups.maps[*idx].weight.name.clone())
                    .collect();
                let groups = &self.groups.maps;
                let own = score(Role::O, &groups[o_idx].weight.words)
                    + score(Role::Down, &groups[down_idx].weight.words);
                let alike = 2 * i32::from(are_alike(&qkv, &mlp, [&o.axes, &down.axes]));
                let order = i32::from(groups_in_order(o_idx, &members))
                    + i32::from(groups_in_order(down_idx, &mlp_members));
                found.push(LayerMaps {
                    qkv,
                    o: part(&groups[o_idx], &o.axes),
                    mlp: mlp.clone(),
                    down: part(&groups[down_idx], &down.axes),
                    d_q,
                    d_kv,
                    d_head: d_head.or(o.d_head),
                    score: own + mlp_score + qkv_score + alike + order - 8 * left.len() as i32,
                    left,
                });
            }
        }
    }

    fn readings(&self, idx: usize) -> Vec<Reading> {
        let weight = &self.groups.maps[idx].weight;
        reading_residual(&weight.shape, self.d_model, weight.n_joined)
    }

    fn score(&self, role: Role, idx: usize) -> i32 {
        score(role, &self.groups.maps[idx].weight.words)
    }

    /// All ways to form a feed-forward block from some matrices.
    fn mlps(&self, rest: &[usize], d_mlp: usize) -> Vec<(Vec<usize>, Mlp, i32)> {
        let mut ways = Vec::new();
        for up_idx in rest {
            let plain = |reading: &Reading| reading.axes.len() == 2;
            for up in self.readings(*up_idx).iter().filter(|r| plain(r)) {
                let part_up = part(&self.groups.maps[*up_idx], &up.axes);
                if up.n_out == d_mlp {
                    ways.push((
                        vec![*up_idx],
                        Mlp::Plain(part_up.clone()),
                        self.score(Role::Up, *up_idx),
                    ));
                    for gate_idx in rest.iter().filter(|idx| *idx != up_idx) {
                        for gate in self
                            .readings(*gate_idx)
                            .iter()
                            .filter(|r| plain(r) && r.axes == up.axes)
                        {
                            if gate.n_out == d_mlp {
                                let gate = part(&self.groups.maps[*gate_idx], &gate.axes);
                                let both = self.score(Role::Up, *up_idx)
                                    + self.score(Role::Gate, *gate_idx);
                                ways.push((
                                    vec![*gate_idx, *up_idx],
                                    Mlp::Gated(gate, part_up.clone()),
                                    both,
                                ));
                            }
                        }
                    }
                }
                if up.n_out == 2 * d_mlp {
                    let fused = FusedPart {
                        map: part_up.clone(),
                        order: vec!["gate", "up"],
                        per: Per::All,
                    };
                    ways.push((
                        vec![*up_idx],
                        Mlp::Fused(fused),
                        self.score(Role::GateUp, *up_idx),
                    ));
                }
            }
        }
        ways
    }

    /// All ways to form queries, keys and values from some matrices.
    fn qkvs(&self, rest: &[usize], d_q: usize) -> Vec<QkvWay> {
        let mut ways = Vec::new();
        for idx in rest {
            for all in self.readings(*idx) {
                let d_kv = all
                    .n_out
                    .checked_sub(d_q)
                    .filter(|twice| twice % 2 == 0)
                    .map(|twice| twice / 2);
                let fits = d_kv
                    .filter(|d_kv| *d_kv > 0 && d_q.is_multiple_of(*d_kv) || is_group(d_q, *d_kv));
                let is_alone = match all.n_parts {
                    Some(n) => n == 3,
                    None => all.axes.len() == 2,
                };
                if let Some(d_kv) =
                    fits.filter(|d_kv| is_alone && (all.n_parts.is_none() || *d_kv == d_q))
                {
                    let fused = FusedPart {
                        map: part(&self.groups.maps[*idx], &all.axes),
                        order: vec!["q", "k", "v"],
                        per: per(&all.axes),
                    };
                    ways.push((
                        vec![*idx],
                        Qkv::Fused(fused),
                        d_kv,
                        all.d_head,
                        self.score(Role::Qkv, *idx),
                    ));
                }
                // Heads with their parts fused in one axis: [head, 3 · d_head, d_model].
                if all.axes.len() == 3 && all.n_parts.is_none() && all.n_out == 3 * d_q {
                    let fused = FusedPart {
                        map: part(&self.groups.maps[*idx], &all.axes),
                        order: vec!["q", "k", "v"],
                        per: Per::Head,
                    };
                    let d_head = all.d_head.map(|d| d / 3);
                    ways.push((
                        vec![*idx],
                        Qkv::Fused(fused),
                        d_q,
                        d_head,
                        self.score(Role::Qkv, *idx),
                    ));
                }
            }
        }
        for q_idx in rest {
            for q in self
                .readings(*q_idx)
                .iter()
                .filter(|q| q.n_out == d_q && q.n_parts.is_none())
            {
                let others: Vec<usize> = rest.iter().copied().filter(|idx| idx != q_idx).collect();
                let part_q = part(&self.groups.maps[*q_idx], &q.axes);
                for kv_idx in &others {
                    for kv in self.readings(*kv_idx) {
                        let d_kv = kv.n_out / 2;
                        if kv.n_out % 2 == 1
                            || d_kv == 0
                            || !(d_q.is_multiple_of(d_kv) || is_group(d_q, d_kv))
                            || kv.n_parts == Some(3)
                        {
                            continue;
                        }
                        if kv.axes.len() > 2 && kv.n_parts.is_none() {
                            continue;
                        }
                        let fused = FusedPart {
                            map: part(&self.groups.maps[*kv_idx], &kv.axes),
                            order: vec!["k", "v"],
                            per: per(&kv.axes),
                        };
                        let both = self.score(Role::Q, *q_idx) + self.score(Role::Kv, *kv_idx) - 2;
                        ways.push((
                            vec![*q_idx, *kv_idx],
                            Qkv::Paired(part_q.clone(), fused),
                            d_kv,
                            kv.d_head.or(q.d_head),
                            both,
                        ));
                    }
                }
                for k_idx in &others {
                    for k in self
                        .readings(*k_idx)
                        .iter()
                        .filter(|k| same_way(&k.axes, &q.axes, k.n_out == k.n_in))
                    {
                        if !(d_q.is_multiple_of(k.n_out.max(1)) || is_group(d_q, k.n_out))
                            || k.n_parts.is_some()
                        {
                            continue;
                        }
                        for v_idx in others.iter().filter(|idx| *idx != k_idx) {
                            for v in self
                                .readings(*v_idx)
                                .iter()
                                .filter(|v| v.axes == k.axes && v.n_out == k.n_out)
                            {
                                let parts = [
                                    part_q.clone(),
                                    part(&self.groups.maps[*k_idx], &k.axes),
                                    part(&self.groups.maps[*v_idx], &v.axes),
                                ];
                                let own = self.score(Role::Q, *q_idx)
                                    + self.score(Role::K, *k_idx)
                                    + self.score(Role::V, *v_idx);
                                let order = i32::from(q_idx < k_idx && k_idx < v_idx);
                                let members = vec![*q_idx, *k_idx, *v_idx];
                                ways.push((
                                    members,
                                    Qkv::Separate(parts),
                                    k.n_out,
                                    q.d_head.or(k.d_head),
                                    own + order,
                                ));
                            }
                        }
                    }
                }
            }
        }
        ways
    }
}

/// Whether all matrices have the same orientation, as is usual within a layer.
fn are_alike(qkv: &Qkv, mlp: &Mlp, others: [&Vec<Axis>; 2]) -> bool {
    let mut axes: Vec<&Vec<Axis>> = others.to_vec();
    match qkv {
        Qkv::Separate(all) => axes.extend(all.iter().map(|map| &map.axes)),
        Qkv::Paired(q, kv) => axes.extend([&q.axes, &kv.map.axes]),
        Qkv::Fused(fused) => axes.push(&fused.map.axes),
    }
    match mlp {
        Mlp::Plain(up) => axes.push(&up.axes),
        Mlp::Gated(gate, up) => axes.extend([&gate.axes, &up.axes]),
        Mlp::Fused(fused) => axes.push(&fused.map.axes),
    }
    let mut matrices = axes.into_iter().filter(|axes| axes.len() == 2);
    let first = matrices.next();
    matrices.all(|axes| Some(axes) == first)
}

/// Whether query and key rows allow a common head width that gives whole groups of heads.
fn is_group(d_q: usize, d_kv: usize) -> bool {
    d_kv > 0
        && (1..=d_kv).any(|d_head| {
            d_kv.is_multiple_of(d_head)
                && d_q.is_multiple_of(d_head)
                && d_head > 1
                && (d_q / d_head).is_multiple_of(d_kv / d_head)
        })
}

fn groups_in_order(last: usize, before: &[usize]) -> bool {
    before.iter().all(|idx| *idx < last)
}

/// Whether queries and keys are stored alike, as far as shapes decide.
fn same_way(k: &[Axis], q: &[Axis], is_square: bool) -> bool {
    k == q || (!is_square && k.len() == q.len())
}

/// Order of the parts in a fused tensor, from its axes.
fn per(axes: &[Axis]) -> Per {
    let outs: Vec<&Axis> = axes.iter().filter(|axis| **axis != Axis::In).collect();
    match outs.iter().position(|axis| **axis == Axis::Part) {
        Some(0) | None => Per::All,
        Some(at) if at + 1 == outs.len() => Per::Unit,
        Some(_) => Per::Head,
    }
}

fn part(group: &MapGroup, axes: &[Axis]) -> MapPart {
    MapPart {
        weight: group.weight.name.clone(),
        bias: group.bias.as_ref().map(|bias| bias.name.clone()),
        axes: axes.to_vec(),
    }
}
