//! The calls that are made, each by its name.

use crate::error::Failure;
use crate::links::{Links, Repeat};
use crate::wire::cluster_client::ClusterClient;
use crate::wire::kv_client::KvClient;
use crate::wire::lease_client::LeaseClient;
use crate::wire::maintenance_client::MaintenanceClient;
use crate::wire::{
    AlarmRequest, AlarmResponse, DeleteRangeRequest, LeaseGrantRequest, LeaseGrantResponse,
    LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
    MemberListRequest, MemberListResponse, RangeRequest, RangeResponse, StatusRequest, StatusResponse,
    TxnRequest, TxnResponse,
};

/// The largest answer that is taken: a page of keys with their values.
const LARGEST: usize = 64 << 20;

impl Links {
    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Failure> {
        self.call(request, Repeat::Yes, async |channel, origin, request| {
            KvClient::with_origin(channel, origin).max_decoding_message_size(LARGEST).range(request).await
        })
        .await
        .map_err(Failure::of_reading)
    }

    pub(crate) async fn txn(&self, request: TxnRequest, repeat: Repeat) -> Result<TxnResponse, Failure> {
        self.call(request, repeat, async |channel, origin, request| {
            KvClient::with_origin(channel, origin).max_decoding_message_size(LARGEST).txn(request).await
        })
        .await
    }

    /// Deletes a key: whether it was there, and whether an earlier request that was not answered may have done it.
    pub(crate) async fn delete(&self, request: DeleteRangeRequest) -> Result<(bool, bool), Failure> {
        let (answer, perhaps) = self
            .ask(request, Repeat::Yes, async |channel, origin, request| {
                KvClient::with_origin(channel, origin).delete_range(request).await
            })
            .await?;
        Ok((answer.deleted > 0, perhaps))
    }

    /// The same by a transaction that compares.
    pub(crate) async fn delete_if(&self, request: TxnRequest) -> Result<(bool, bool), Failure> {
        let (answer, perhaps) = self
            .ask(request, Repeat::Yes, async |channel, origin, request| {
                KvClient::with_origin(channel, origin).txn(request).await
            })
            .await?;
        Ok((answer.succeeded, perhaps))
    }

    pub(crate) async fn lease_grant(
        &self,
        request: LeaseGrantRequest,
    ) -> Result<LeaseGrantResponse, Failure> {
        // One that nobody knows of ends by itself.
        self.call(request, Repeat::Yes, async |channel, origin, request| {
            LeaseClient::with_origin(channel, origin).lease_grant(request).await
        })
        .await
    }

    pub(crate) async fn lease_revoke(
        &self,
        request: LeaseRevokeRequest,
    ) -> Result<LeaseRevokeResponse, Failure> {
        self.call(request, Repeat::Yes, async |channel, origin, request| {
            LeaseClient::with_origin(channel, origin).lease_revoke(request).await
        })
        .await
    }

    pub(crate) async fn members(&self) -> Result<MemberListResponse, Failure> {
        self.call(MemberListRequest::default(), Repeat::Yes, async |channel, origin, request| {
            ClusterClient::with_origin(channel, origin).member_list(request).await
        })
        .await
    }

    pub(crate) async fn status(&self) -> Result<StatusResponse, Failure> {
        self.call(StatusRequest {}, Repeat::Yes, async |channel, origin, request| {
            MaintenanceClient::with_origin(channel, origin).status(request).await
        })
        .await
    }

    pub(crate) async fn alarms(&self) -> Result<AlarmResponse, Failure> {
        self.call(AlarmRequest::default(), Repeat::Yes, async |channel, origin, request| {
            MaintenanceClient::with_origin(channel, origin).alarm(request).await
        })
        .await
    }

    pub(crate) async fn lease_time_to_live(
        &self,
        request: LeaseTimeToLiveRequest,
    ) -> Result<LeaseTimeToLiveResponse, Failure> {
        self.call(request, Repeat::Yes, async |channel, origin, request| {
            LeaseClient::with_origin(channel, origin).lease_time_to_live(request).await
        })
        .await
        .map_err(Failure::of_reading)
    }
}
