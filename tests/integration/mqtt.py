"""A real MQTT client (paho) that keeps what it receives. Skips the test where paho is not installed."""
import threading

import pytest

from waiting import wait_until

paho = pytest.importorskip("paho.mqtt.client")


class Client:
    """version: 3, 4 or 5. Everything that arrives is acknowledged at once by the library."""

    def __init__(self, port, client_id="", version=4, clean=True, expiry=None, connect=True, properties=None):
        arguments = {"client_id": client_id, "protocol": version}
        if version != 5:
            arguments["clean_session"] = clean
        if hasattr(paho, "CallbackAPIVersion"):
            arguments["callback_api_version"] = paho.CallbackAPIVersion.VERSION1
        self.paho = paho.Client(**arguments)
        self.port, self.version, self.clean, self.expiry, self.extra = port, version, clean, expiry, properties or {}
        self.lock = threading.Lock()
        self.messages, self.granted, self.connack, self.published = [], {}, None, {}
        self.paho.on_connect = self._connected
        self.paho.on_message = self._message
        self.paho.on_subscribe = self._subscribed
        self.paho.on_publish = lambda client, data, mid, *more: self.published.setdefault(mid, True)
        if connect:
            self.connect()

    def _connected(self, client, data, flags, reason, properties=None):
        self.connack = (flags, int(getattr(reason, "value", reason)), properties)

    def _message(self, client, data, message):
        with self.lock:
            self.messages.append(message)

    def _subscribed(self, client, data, mid, granted, properties=None):
        self.granted[mid] = [int(getattr(one, "value", one)) for one in granted]

    def connect(self):
        more = {}
        if self.version == 5:
            from paho.mqtt.packettypes import PacketTypes
            from paho.mqtt.properties import Properties
            more["properties"] = Properties(PacketTypes.CONNECT)
            if self.expiry is not None:
                more["properties"].SessionExpiryInterval = self.expiry
            for name, value in self.extra.items():
                setattr(more["properties"], name, value)
            more["clean_start"] = self.clean
        self.connack = None
        self.paho.connect("127.0.0.1", self.port, keepalive=60, **more)
        self.paho.loop_start()
        wait_until(lambda: self.connack is not None, 20, "CONNACK")
        return self

    def subscribe(self, topic, qos=0, **more):
        """The granted QoS or reason code of each filter."""
        _, mid = self.paho.subscribe(topic, **more) if isinstance(topic, list) else self.paho.subscribe(topic, qos, **more)
        return wait_until(lambda: self.granted.get(mid), 20, f"SUBACK for {topic}")

    def publish(self, topic, payload=b"", qos=0, retain=False, properties=None, wait=True):
        info = self.paho.publish(topic, payload, qos, retain, **({"properties": properties} if properties else {}))
        if wait:
            wait_until(lambda: self.published.get(info.mid), 20, f"acknowledgement of {topic}")
        return info.mid

    def payloads(self):
        with self.lock:
            return [bytes(one.payload) for one in self.messages]

    def topics(self):
        with self.lock:
            return [one.topic for one in self.messages]

    def close(self):
        self.paho.disconnect()
        self.paho.loop_stop()
