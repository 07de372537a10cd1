//! What happens to the connections of the host that is troubled, and to the machines of its paths.

use super::{EAST, WEST};
use crate::life::Run;
use reactor::network::{ConnectionId, Cut, connections, cut, refuse, stop};
use reactor::{random, sleep};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use stdx::num::{u64_of, usize64};

/// How long nothing happens, in doublings of a microsecond: up to some ten seconds.
const CALM_DOUBLINGS: u64 = 24;

/// The same while commands are under way: up to about a millisecond.
const SOON_DOUBLINGS: u64 = 10;

/// How long a machine stands still at most: longer than a host waits until it is sure that its past is over.
const STILL: Duration = Duration::from_secs(20);

fn below(most: Duration) -> Duration {
    Duration::from_micros(random() % u64::try_from(most.as_micros()).unwrap_or(u64::MAX))
}

pub fn any() -> Cut {
    [Cut::Reset, Cut::HalfOpen, Cut::Silent][usize64(random() % 3)]
}

/// The connections to these addresses.
fn to(paths: &[SocketAddr]) -> Vec<ConnectionId> {
    let open = connections().into_iter();
    open.filter(|open| paths.contains(&open.to)).map(|open| open.id).collect()
}

/// Cuts all that the troubled host has.
pub fn cut_all(how: Cut) {
    to(&[EAST, WEST]).into_iter().for_each(|id| cut(id, how));
}

/// Makes trouble until it is stopped, whatever the host does meanwhile.
pub async fn make(run: Rc<Run>) {
    loop {
        calm(CALM_DOUBLINGS).await;
        strike(&run).await;
    }
}

/// Makes trouble once, soon: commands that are sent now are under way then.
pub async fn make_soon(run: Rc<Run>) {
    calm(SOON_DOUBLINGS).await;
    strike(&run).await;
}

/// Nothing happens, for a short time as likely as for one twice as long.
async fn calm(doublings: u64) {
    sleep(Duration::from_micros(random() % (1 << (random() % doublings + 1)))).await;
}

async fn strike(run: &Run) {
    match random() % 8 {
        0..4 => {
            let open = to(&[EAST, WEST]);
            if !open.is_empty() {
                let (id, how) = (open[usize64(random() % u64_of(open.len()))], any());
                cut(id, how);
                run.note(format_args!("{how:?} of {id:?}"));
            }
        }
        4 => {
            let span = below(STILL);
            stop(EAST.ip(), span);
            run.note(format_args!("east stands still for {span:?}"));
        }
        5 => {
            let path = [EAST, WEST][usize64(random() % 2)];
            refuse(path, true);
            run.note(format_args!("{path} refuses"));
            sleep(below(Duration::from_secs(2))).await;
            refuse(path, false);
        }
        _ => {
            // What is on its way there comes long after its host has heard that the connection is gone.
            let span = below(STILL);
            stop(EAST.ip(), span);
            sleep(below(Duration::from_millis(2))).await;
            to(&[EAST]).into_iter().for_each(|id| cut(id, Cut::HalfOpen));
            run.note(format_args!("east is late by {span:?}"));
        }
    }
}
