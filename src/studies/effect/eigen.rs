//! Eigenvalues of small square matrices in f64: symmetric ones by Jacobi rotations, others by shifted QR steps on a complex
//! Hessenberg matrix (Golub and Van Loan, Matrix Computations, chapters 7 and 8).

/// A complex number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Complex {
    pub re: f64,
    pub im: f64,
}

impl Complex {
    const ZERO: Self = Self { re: 0.0, im: 0.0 };

    fn real(re: f64) -> Self {
        Self { re, im: 0.0 }
    }

    /// |z|.
    pub fn abs(self) -> f64 {
        self.re.hypot(self.im)
    }

    fn conjugate(self) -> Self {
        Self {
            re: self.re,
            im: -self.im,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            re: self.re + other.re,
            im: self.im + other.im,
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            re: self.re - other.re,
            im: self.im - other.im,
        }
    }

    fn times(self, other: Self) -> Self {
        Self {
            re: self.re * other.re - self.im * other.im,
            im: self.re * other.im + self.im * other.re,
        }
    }

    fn scaled(self, by: f64) -> Self {
        Self {
            re: self.re * by,
            im: self.im * by,
        }
    }

    /// Square root with a non-negative real part.
    fn root(self) -> Self {
        let abs = self.abs();
        let re = ((abs + self.re) / 2.0).max(0.0).sqrt();
        let im = ((abs - self.re) / 2.0).max(0.0).sqrt();
        Self {
            re,
            im: if self.im < 0.0 { -im } else { im },
        }
    }
}

/// Most QR steps for one eigenvalue; a handful are usual.
const MOST_STEPS: usize = 120;

/// All eigenvalues of a real matrix, unordered; `None` if they do not converge, or a number is not finite. // [n, n]
pub fn eigenvalues(matrix: &[f64], n: usize) -> Option<Vec<Complex>> {
    if matrix.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mut h: Vec<Complex> = hessenberg(matrix.to_vec(), n)
        .into_iter()
        .map(Complex::real)
        .collect();
    let size = h.iter().map(|z| z.abs()).fold(0.0, f64::max);
    let mut found = vec![Complex::ZERO; n];
    let mut end = n;
    let mut n_steps = 0;
    while end > 0 {
        let last = end - 1;
        // Where a subdiagonal element is negligible, the matrix splits.
        let mut start = last;
        while start > 0 {
            let around = h[start * n + start].abs() + h[(start - 1) * n + start - 1].abs();
            let around = if around == 0.0 { size } else { around };
            if h[start * n + start - 1].abs() <= f64::EPSILON * around {
                break;
            }
            start -= 1;
        }
        if start == last {
            found[last] = h[last * n + last];
            end -= 1;
            n_steps = 0;
            continue;
        }
        n_steps += 1;
        if n_steps > MOST_STEPS {
            return None;
        }
        let shift = if n_steps % 20 == 0 {
            // An exceptional shift breaks cycles.
            Complex::real(h[last * n + last - 1].abs() + h[last * n + last].abs())
        } else {
            nearest_of_corner(&h, n, last)
        };
        qr_step(&mut h, n, start..end, shift);
    }
    Some(found)
}

/// Reduces a matrix to Hessenberg form by reflections, which keep its eigenvalues.
fn hessenberg(mut a: Vec<f64>, n: usize) -> Vec<f64> {
    for column in 0..n.saturating_sub(2) {
        let below: Vec<f64> = (column + 1..n).map(|row| a[row * n + column]).collect();
        let length = below.iter().map(|v| v * v).sum::<f64>().sqrt();
        if length == 0.0 {
            continue;
        }
        let mut v = below;
        v[0] += if v[0] < 0.0 { -length } else { length };
        let squared: f64 = v.iter().map(|x| x * x).sum();
        for j in 0..n {
            let along: f64 = v
                .iter()
                .enumerate()
                .map(|(i, x)| x * a[(column + 1 + i) * n + j])
                .sum();
            let by = 2.0 * along / squared;
            for (i, x) in v.iter().enumerate() {
                a[(column + 1 + i) * n + j] -= by * x;
            }
        }
        for row in a.chunks_mut(n) {
            let along: f64 = v.iter().zip(&row[column + 1..]).map(|(x, y)| x * y).sum();
            let by = 2.0 * along / squared;
            for (x, y) in v.iter().zip(&mut row[column + 1..]) {
                *y -= by * x;
            }
        }
        for row in column + 2..n {
            a[row * n + column] = 0.0;
        }
    }
    a
}

/// Wilkinson's shift: the eigenvalue of the last 2 × 2 block that is nearest to its last element.
fn nearest_of_corner(h: &[Complex], n: usize, last: usize) -> Complex {
    let (a, b) = (h[(last - 1) * n + last - 1], h[(last - 1) * n + last]);
    let (c, d) = (h[last * n + last - 1], h[last * n + last]);
    let half = a.minus(d).scaled(0.5);
    let root = half.times(half).plus(b.times(c)).root();
    let middle = a.plus(d).scaled(0.5);
    let (one, other) = (middle.plus(root), middle.minus(root));
    if one.minus(d).abs() < other.minus(d).abs() {
        one
    } else {
        other
    }
}

/// One shifted QR step on a part of a Hessenberg matrix: rotations from the left, then from the right.
fn qr_step(h: &mut [Complex], n: usize, part: std::ops::Range<usize>, shift: Complex) {
    for at in part.clone() {
        h[at * n + at] = h[at * n + at].minus(shift);
    }
    let mut rotations = Vec::with_capacity(part.len());
    for at in part.start..part.end - 1 {
        let (x, y) = (h[at * n + at], h[(at + 1) * n + at]);
        let length = x.abs().hypot(y.abs());
        let (c, s) = if length == 0.0 {
            (Complex::real(1.0), Complex::ZERO)
        } else {
            (x.scaled(1.0 / length), y.scaled(1.0 / length))
        };
        for j in at..part.end {
            let (up, down) = (h[at * n + j], h[(at + 1) * n + j]);
            h[at * n + j] = c.conjugate().times(up).plus(s.conjugate().times(down));
            h[(at + 1) * n + j] = c.times(down).minus(s.times(up));
        }
        rotations.push((c, s));
    }
    for (idx, (c, s)) in rotations.into_iter().enumerate() {
        let at = part.start + idx;
        for i in part.start..(at + 2).min(part.end) {
            let (left, right) = (h[i * n + at], h[i * n + at + 1]);
            h[i * n + at] = left.times(c).plus(right.times(s));
            h[i * n + at + 1] = right.times(c.conjugate()).minus(left.times(s.conjugate()));
        }
    }
    for at in part {
        h[at * n + at] = h[at * n + at].plus(shift);
    }
}

/// Most Jacobi sweeps; convergence is quadratic.
const SWEEPS: usize = 30;

/// Eigenvalues of a symmetric matrix, unordered. // [n, n]
pub fn symmetric_eigenvalues(matrix: &[f64], n: usize) -> Vec<f64> {
    let mut a = matrix.to_vec();
    let size: f64 = a.iter().map(|v| v * v).sum();
    for _ in 0..SWEEPS {
        let mut off = 0.0;
        for p in 0..n {
            for q in p + 1..n {
                let between = a[p * n + q];
                off += between * between;
                if between == 0.0 {
                    continue;
                }
                let theta = (a[q * n + q] - a[p * n + p]) / (2.0 * between);
                let t = theta.signum() / (theta.abs() + theta.hypot(1.0));
                let c = 1.0 / t.hypot(1.0);
                let s = t * c;
                for k in 0..n {
                    let (kp, kq) = (a[k * n + p], a[k * n + q]);
                    a[k * n + p] = c * kp - s * kq;
                    a[k * n + q] = s * kp + c * kq;
                }
                for k in 0..n {
                    let (pk, qk) = (a[p * n + k], a[q * n + k]);
                    a[p * n + k] = c * pk - s * qk;
                    a[q * n + k] = s * pk + c * qk;
                }
            }
        }
        if off <= 1e-28 * size {
            break;
        }
    }
    (0..n).map(|idx| a[idx * n + idx]).collect()
}

/// Cholesky factor L of a positive semi-definite matrix, L·Lᵀ; columns with negligible pivots are zero. // [n, n]
pub fn factor(matrix: &[f64], n: usize) -> Vec<f64> {
    let largest = (0..n).map(|idx| matrix[idx * n + idx]).fold(0.0, f64::max);
    let mut l = vec![0.0f64; n * n];
    for column in 0..n {
        let own: f64 = (0..column).map(|k| l[column * n + k].powi(2)).sum();
        let pivot = matrix[column * n + column] - own;
        if pivot <= 1e-13 * largest {
            continue;
        }
        let root = pivot.sqrt();
        l[column * n + column] = root;
        for row in column + 1..n {
            let known: f64 = (0..column)
                .map(|k| l[row * n + k] * l[column * n + k])
                .sum();
            l[row * n + column] = (matrix[row * n + column] - known) / root;
        }
    }
    l
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(mut found: Vec<Complex>) -> Vec<Complex> {
        found.sort_by(|a, b| (a.re, a.im).partial_cmp(&(b.re, b.im)).expect("finite"));
        found
    }

    fn assert_near(found: &[Complex], expected: &[(f64, f64)]) {
        assert_eq!(found.len(), expected.len());
        for (found, (re, im)) in found.iter().zip(expected) {
            let off = (found.re - re).abs() + (found.im - im).abs();
            assert!(off < 1e-9, "{found:?} is not {re} + {im}i");
        }
    }

    #[test]
    fn rotation_triangular_and_companion_matrices_have_their_known_eigenvalues() {
        let turn = [0.6, -0.8, 0.8, 0.6];
        assert_near(
            &sorted(eigenvalues(&turn, 2).expect("some")),
            &[(0.6, -0.8), (0.6, 0.8)],
        );
        let triangle = [3.0, 5.0, -7.0, 0.0, -1.0, 2.0, 0.0, 0.0, 0.5];
        let known = [(-1.0, 0.0), (0.5, 0.0), (3.0, 0.0)];
        assert_near(&sorted(eigenvalues(&triangle, 3).expect("some")), &known);
        // x⁴ = 1: all four roots, on which unshifted steps cycle.
        let mut shift = vec![0.0; 16];
        (0..4).for_each(|idx| shift[idx * 4 + (idx + 1) % 4] = 1.0);
        let roots = [(-1.0, 0.0), (0.0, -1.0), (0.0, 1.0), (1.0, 0.0)];
        let found = eigenvalues(&shift, 4).expect("some");
        for (re, im) in roots {
            assert!(
                found
                    .iter()
                    .any(|z| (z.re - re).abs() + (z.im - im).abs() < 1e-9),
                "{found:?}"
            );
        }
        assert_eq!(eigenvalues(&[f64::NAN], 1), None);
        assert_near(&eigenvalues(&[0.0; 9], 3).expect("some"), &[(0.0, 0.0); 3]);
    }

    #[test]
    fn sums_of_eigenvalues_and_of_their_squares_equal_traces() {
        let n = 40;
        let mut random = fastrand::Rng::with_seed(7);
        let a: Vec<f64> = (0..n * n).map(|_| random.f64() - 0.4).collect();
        let found = eigenvalues(&a, n).expect("some");
        let trace: f64 = (0..n).map(|idx| a[idx * n + idx]).sum();
        let squares: f64 = (0..n * n).map(|at| a[at] * a[at % n * n + at / n]).sum();
        let sum: f64 = found.iter().map(|z| z.re).sum();
        let of_squares: f64 = found.iter().map(|z| z.re * z.re - z.im * z.im).sum();
        assert!(
            (sum - trace).abs() < 1e-9 * (1.0 + trace.abs()),
            "{sum} {trace}"
        );
        assert!((of_squares - squares).abs() < 1e-8 * (1.0 + squares.abs()));
        assert!(
            found.iter().map(|z| z.im).sum::<f64>().abs() < 1e-9,
            "pairs"
        );
    }

    /// Computed with numpy.linalg.eigvals.
    #[test]
    fn eigenvalues_agree_with_numpy() {
        let a = [
            2.0, -1.0, 0.5, 3.0, 0.0, 1.0, 4.0, -2.0, 1.5, 2.5, -3.0, 0.25, -1.0, 0.75, 2.0, 1.0,
        ];
        let found = sorted(eigenvalues(&a, 4).expect("some"));
        assert_near(&found, &NUMPY);
    }

    const NUMPY: [(f64, f64); 4] = [
        (-5.033165692539229, 0.000000000000000),
        (1.572_487_130_338_25, -2.249_426_391_971_741),
        (1.572_487_130_338_25, 2.249_426_391_971_741),
        (2.888191431862727, 0.000000000000000),
    ];

    #[test]
    fn a_factor_multiplies_to_its_matrix_and_jacobi_finds_trace_and_rank() {
        let n = 12;
        let mut random = fastrand::Rng::with_seed(3);
        // Rank 5: most eigenvalues are 0.
        let b: Vec<f64> = (0..n * 5).map(|_| random.f64() - 0.5).collect();
        let mut a = vec![0.0; n * n];
        for (at, value) in a.iter_mut().enumerate() {
            let (i, j) = (at / n, at % n);
            *value = (0..5).map(|k| b[i * 5 + k] * b[j * 5 + k]).sum();
        }
        let l = factor(&a, n);
        for (at, value) in a.iter().enumerate() {
            let (i, j) = (at / n, at % n);
            let back: f64 = (0..n).map(|k| l[i * n + k] * l[j * n + k]).sum();
            assert!((back - value).abs() < 1e-9, "{i} {j}");
        }
        let mut found = symmetric_eigenvalues(&a, n);
        found.sort_by(|x, y| y.total_cmp(x));
        let trace: f64 = (0..n).map(|idx| a[idx * n + idx]).sum();
        assert!((found.iter().sum::<f64>() - trace).abs() < 1e-10);
        assert!(found[4] > 1e-3 && found[5].abs() < 1e-10, "{found:?}");
    }
}
