//! Where latency starts to rise.

/// The bend of a curve of latency over rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Knee {
    /// Rate at the bend (operations a second): one of the curve's.
    pub rate: f64,
    /// Latency there, in the unit of the curve.
    pub latency: f64,
}

/// Fewest different rates of a curve that has a bend.
const LEAST_POINTS: usize = 5;

/// How far the curve has to lie below its chord, as a share of its height, to have a bend.
const LEAST_BEND: f64 = 0.15;

/// The bend of a curve of points (operations a second, latency in any unit), in any order, several at the same rate
/// allowed. `None` if there are fewer than 5 different rates or if the curve does not bend upwards.
///
/// The method is Kneedle's (Satopää, Albrecht, Irwin and Raghavan, *Finding a "Kneedle" in a Haystack*, 2011) for a
/// convex rising curve: both axes are scaled to 0 to 1, and the bend is where the curve lies furthest below its chord.
/// Before that, latencies at the same rate give their median, and neighbours that fall with the rate are pooled
/// (isotonic regression), in place of the paper's spline. Latency is taken as its log, because that of an overloaded
/// store would squash all the rest against the axis.
#[must_use]
pub fn knee(curve: &[(f64, f64)]) -> Option<Knee> {
    let points = rising(&medians(curve));
    let (&(first, low), &(last, high)) = (points.first()?, points.last()?);
    if points.len() < LEAST_POINTS || high <= low {
        return None;
    }
    let below =
        |&(rate, latency): &(f64, f64)| (rate - first) / (last - first) - (latency - low) / (high - low);
    let bend = points.iter().max_by(|a, b| below(a).total_cmp(&below(b)))?;
    (below(bend) >= LEAST_BEND).then(|| Knee { rate: bend.0, latency: bend.1.exp() })
}

/// Ascending rates, each with the median of its log latencies.
fn medians(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = curve
        .iter()
        .filter(|(rate, latency)| rate.is_finite() && latency.is_finite() && *latency > 0.0)
        .map(|(rate, latency)| (*rate, latency.ln()))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    points
        .chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq())
        .map(|same| (same[0].0, f64::midpoint(same[(same.len() - 1) / 2].1, same[same.len() / 2].1)))
        .collect()
}

/// The nearest curve that never falls: neighbours that do are given their common mean.
fn rising(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (_, latency) in points {
        let mut pool = (*latency, 1);
        while let Some(before) = pools.pop_if(|before| before.0 > pool.0) {
            let count = before.1 + pool.1;
            pool = ((before.0 * before.1 as f64 + pool.0 * pool.1 as f64) / count as f64, count);
        }
        pools.push(pool);
    }
    let levels = pools.iter().flat_map(|(level, count)| std::iter::repeat_n(*level, *count));
    points.iter().zip(levels).map(|((rate, _), level)| (*rate, level)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bend_of_a_queue_is_found() {
        // flat at 2 ms up to 800/s, then doubling every 50/s
        let curve: Vec<(f64, f64)> = (1..=20)
            .map(|n| f64::from(n) * 50.0)
            .map(|rate| (rate, 2.0 * ((rate - 800.0).max(0.0) / 50.0).exp2()))
            .collect();
        let found = knee(&curve).unwrap();
        assert!((750.0..=850.0).contains(&found.rate), "{found:?}");
        assert!((found.latency - 2.0).abs() < 0.5, "{found:?}");
    }

    #[test]
    fn noise_and_order_do_not_move_it_far() {
        let mut curve: Vec<(f64, f64)> = (1..=20)
            .map(|n| (f64::from(n) * 50.0, if n % 2 == 0 { 1.1 } else { 0.9 }))
            .map(|(rate, noise)| (rate, noise / (1.0 - rate / 1050.0)))
            .collect();
        curve.reverse();
        let found = knee(&curve).unwrap();
        assert!((700.0..=950.0).contains(&found.rate), "{found:?}");
    }

    #[test]
    fn straight_short_and_falling_curves_have_none() {
        let straight: Vec<(f64, f64)> = (1..=9).map(|n| (f64::from(n), f64::from(n).exp())).collect();
        assert_eq!(knee(&straight), None);
        assert_eq!(knee(&[(1.0, 1.0), (2.0, 1.0), (3.0, 9.0)]), None);
        let falling: Vec<(f64, f64)> = (1..=9).map(|n| (f64::from(n), 10.0 - f64::from(n))).collect();
        assert_eq!(knee(&falling), None);
        assert_eq!(knee(&[]), None);
        assert_eq!(knee(&[(f64::NAN, 1.0), (1.0, -1.0)]), None);
    }
}
