# SPDX-License-Identifier: Apache-2.0
"""Calls that are answered late, early or after the client is gone: sessions end in the middle of anything."""
import contextlib
import json
import socket

from box import GiB, MiB, BoxTest, Closed, fixed, message


class Instances(BoxTest):
    options = ("--mig", "0:3g.20gb+3g.20gb")

    def test_a_client_that_goes_away_within_a_turn_leaves_nothing_behind(self):
        uuid = next(device["uuid"] for device in self.box.look()["devices"] if device["kind"] == "mig")
        drain = json.dumps(message("Drain", {"devices": [uuid]})).encode() + b"\0"
        resume = json.dumps(message("Resume", {"devices": [uuid]})).encode() + b"\0"
        look = json.dumps(message("GetBox")).encode() + b"\0"
        for _ in range(20):
            # Pipelined, and deaf to the first answer: an instance has no handles that the reader would
            # have to close, so the call is answered while it is being made.
            clients = [self.box.client() for _ in range(8)]
            for i, client in enumerate(clients):
                client.socket.shutdown(socket.SHUT_RD)
                with contextlib.suppress(Closed):
                    client.send_bytes((drain + resume + look) * 4 if i % 2 else look * 8)
            self.box.look()  # not closed before it is their turn
            for client in clients:
                client.close()
        self.box.call("Resume", {"devices": [uuid]})
        self.box.job().lease(fixed(GiB, devices=[uuid]))


class Pipelines(BoxTest):
    def test_a_client_that_asks_for_much_and_reads_nothing_stalls_no_other(self):
        acquire = json.dumps(message("Acquire", {"request": fixed(2 * MiB)})).encode() + b"\0"
        for _ in range(10):
            clients = [self.box.client() for _ in range(4)]
            for i, client in enumerate(clients):
                if i % 2:
                    client.socket.shutdown(socket.SHUT_RD)
                with contextlib.suppress(Closed):
                    client.send_bytes(acquire * 20)
            self.box.look()
            for client in clients:
                client.close()
        self.assertTrue(self.box.look()["devices"])


class Confinement(BoxTest):
    def test_one_scope_at_a_time(self):
        jobs = [self.box.job() for _ in range(4)]
        grant = jobs[0].lease(fixed(GiB))
        parameters = {"lease": grant["lease"], "token": grant["token"]}
        for job in jobs:
            job.send("Confine", parameters, on="confine")
        answers = [job.receive("confine") for job in jobs]
        scopes = [answer["parameters"]["scope"] for answer in answers
                  if "error" not in answer and answer["parameters"].get("scope")]
        self.assertLessEqual(len(scopes), 1, answers)
        for answer in answers:
            if "error" in answer:
                self.assertIn(answer["error"].rsplit(".", 1)[1], ("Busy", "Denied"), answer)

    def test_a_client_that_does_not_wait_for_its_scope_leaves_nothing_behind(self):
        for _ in range(10):
            job = self.box.job()
            grant = job.lease(fixed(64 * MiB))
            job.send("Confine", {"lease": grant["lease"], "token": grant["token"]}, on="confine")
            job.disconnect("confine")
            job.close()
        self.box.until(lambda box: not box["leases"], "the end of all leases")
