"""Designs of fully connected layers."""

from __future__ import annotations

from tvm import relax

from tvm_xengine.cost_models.corpus.designs.design import Design
from tvm_xengine.relax_ir.types import static_shape


def autoencoder(d: Design) -> relax.Expr:
    """The anomaly detector of MLPerf Tiny (Banbury et al. 2021): 640 numbers through eight."""
    x: relax.Expr = d.layers.input("x", (d.batch_size * 4, 20 * d.length))
    inputs = static_shape(x.ty)[1]
    for w in (512, 512, 512):
        x = d.relu(d.norm(d.linear(x, d.width(w))))
    x = d.relu(d.linear(x, 8))
    for w in (512, 512, 512):
        x = d.relu(d.norm(d.linear(x, d.width(w))))
    return d.linear(x, inputs)


def recommender(d: Design) -> relax.Expr:
    """Large fully connected layers over rows of tables, as in DLRM (Naumov et al. 2019)."""
    items = d.layers.input("x", (d.batch_size * 8, 16), "int64")
    rows = d.layers.embedding("items", items, 500 + 10 * d.length, d.width(128))
    x = d.layers.flatten("flat", rows)
    for w in (2048, 1024, 256):
        x = d.relu(d.linear(x, d.width(w)))
    return d.linear(x, d.classes)


def pointnet(d: Design) -> relax.Expr:
    """PointNet (Qi et al. 2017): the same layers for every point, and the maximum over points."""
    points = 16 * d.length
    x: relax.Expr = d.layers.input("x", (d.batch_size * points, 3))
    for width in (64, 64, 128, 512):
        x = d.relu(d.norm(d.linear(x, d.width(width))))
    width = static_shape(x.ty)[-1]
    apart = d.emit("points", relax.op.reshape(x, (d.batch_size, points, width)))
    x = d.emit("largest", relax.op.max(apart, 1))
    for each in (256, 128):
        x = d.dropout(d.relu(d.norm(d.linear(x, d.width(each)))), 0.3)
    return d.linear(x, d.classes)
