//! Orders of a script's steps.

use crate::script::Step;

/// The session of each step, one after the other: its next step is meant.
pub type Order = Vec<usize>;

/// The most orders that `order all` may stand for.
const MOST: usize = 1000;

/// All orders of the steps but those in which the transactions run one after the other. What each session begins with is run
/// first: when a transaction begins does not matter until its first statement.
///
/// # Errors
/// They are more than [`MOST`].
pub(crate) fn all(steps: &[Step]) -> Result<Vec<Order>, String> {
    let sessions = steps.iter().map(|step| step.session + 1).max().unwrap_or(0);
    let mut left = vec![0_usize; sessions];
    let mut begun = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        let is_first = !steps[..index].iter().any(|earlier| earlier.session == step.session);
        if is_first && step.statement.eq_ignore_ascii_case("begin") {
            begun.push(step.session);
        } else {
            left[step.session] += 1;
        }
    }
    let mut orders = Vec::new();
    extend(&mut begun.clone(), &mut left, &mut orders);
    if orders.len() > MOST {
        return Err(format!(
            "\"order all\" stands for more than {MOST} orders: write those that matter, each in a line like: order T1 T2 T2 T1"
        ));
    }
    orders.retain(|order| !is_serial(&order[begun.len()..]));
    Ok(orders)
}

/// Adds all orders that begin so and go on with what is left of each session; stops when there are too many.
fn extend(order: &mut Order, left: &mut [usize], orders: &mut Vec<Order>) {
    if orders.len() > MOST {
        return;
    }
    if left.iter().all(|left| *left == 0) {
        orders.push(order.clone());
    }
    for session in 0..left.len() {
        if left[session] > 0 {
            left[session] -= 1;
            order.push(session);
            extend(order, left, orders);
            order.pop();
            left[session] += 1;
        }
    }
}

/// Whether each session has all of its steps before the next one has its first.
fn is_serial(order: &[usize]) -> bool {
    let turns = order.chunk_by(|one, next| one == next).count();
    let mut sessions = order.to_vec();
    sessions.sort_unstable();
    sessions.dedup();
    turns == sessions.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(of: &[(usize, &str)]) -> Vec<Step> {
        let step = |(session, statement): &(usize, &str)| Step {
            session: *session,
            statement: (*statement).to_owned(),
            label: None,
        };
        of.iter().map(step).collect()
    }

    #[test]
    fn all_orders_but_the_serial_ones_are_made() {
        let two = steps(&[(0, "begin"), (1, "begin"), (0, "a"), (0, "commit"), (1, "b"), (1, "commit")]);
        let orders = all(&two).unwrap();
        // six interleavings of two and two steps, of which two are serial
        assert_eq!(orders.len(), 4);
        assert!(orders.iter().all(|order| order.starts_with(&[0, 1])));
        assert!(orders.contains(&vec![0, 1, 1, 0, 0, 1]) && !orders.contains(&vec![0, 1, 0, 0, 1, 1]));
    }

    #[test]
    fn too_many_orders_are_refused() {
        let many: Vec<(usize, &str)> = (0..24).map(|step| (step % 3, "select 1")).collect();
        assert!(all(&steps(&many)).unwrap_err().contains("more than 1000"));
    }
}
