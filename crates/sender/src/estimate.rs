//! Estimates how long pushing an event would take, before it is sent.

use std::collections::BTreeMap;

use tidings_telemetry::unix_now;
use tidings_types::{DeviceNumber, Event};

use crate::config::Pool;
use crate::context::Context;
use crate::report::Estimate;

/// Devices that are looked at. A larger audience is sampled evenly.
const SAMPLE_COUNT: u64 = 65_536;
/// Records read under one lock, so that changes of devices do not wait long.
const PIECE_COUNT: usize = 1024;

/// The work of each pool, in the order of pools. Pools without devices are left out.
pub(crate) fn estimate(context: &Context, pools: &[Pool], event: &Event) -> Vec<Estimate> {
    let frozen = context.store.select(event);
    let step = frozen.len().div_ceil(SAMPLE_COUNT).max(1);
    let mut sample = frozen.iter_from(DeviceNumber(0)).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    let (mut sampled, mut by_pool) = (0, BTreeMap::<usize, u64>::new());
    loop {
        let piece: Vec<DeviceNumber> = sample.by_ref().take(PIECE_COUNT).collect();
        if piece.is_empty() {
            break;
        }
        sampled += piece.len() as u64;
        context.each_recipient(&piece, |_, recipient| {
            let lane = recipient.and_then(|recipient| context.reach(event, &recipient).ok());
            if let Some((_, lane)) = lane {
                *by_pool.entry(context.routes.lanes()[lane].pool).or_default() += 1;
            }
        });
    }
    let now = unix_now();
    by_pool
        .into_iter()
        .map(|(index, count)| {
            let Pool { name, provider, gauge, .. } = &pools[index];
            let devices = scaled(count, sampled, frozen.len());
            let forecast = gauge.as_ref().and_then(|gauge| gauge.forecast(devices, now));
            Estimate { pool: name.clone(), provider: *provider, devices, forecast }
        })
        .collect()
}

/// Scales a `count` of the sample to the whole.
fn scaled(count: u64, sampled: u64, whole: u64) -> u64 {
    let scaled = u128::from(count) * u128::from(whole) / u128::from(sampled.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
