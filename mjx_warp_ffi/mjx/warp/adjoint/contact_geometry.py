"""Contacts as differentiable functions of the poses and sizes of their two geoms.

The contract:

  geometry = ContactGeometry(mjm, m, d)          # once, outside a capture
  geometry.forward(geom_xpos, geom_xmat)         # launches; after MJWarp's collision of `d`
  geometry.dist, geometry.pos, geometry.frame    # (naconmax,) float, vec3, mat33
  geometry.backward(grad_dist, grad_pos, grad_frame, grad_geom_xpos, grad_geom_xmat,
                    grad_geom_size)              # launches; adds to the last three

* `forward` reads the pool (`d.contact.geom, worldid, geomcollisionid, dist, pos, frame`, `d.nacon`)
  and computes every contact that exists once more, from `geom_xpos`, `geom_xmat` (nworld, ngeom)
  and `m.geom_size`. The poses must be those at which the collision ran: which features touch (face,
  edge, vertex, side, rim, slot) is read off the contact there and stays frozen. Rows beyond
  `min(nacon, naconmax)` are not written.
* `frame` is MuJoCo's: row 0 the normal from geom 0 to geom 1, rows 1 and 2 the tangents of
  MJWarp's `make_frame` (those of plane-capsule follow the capsule). Tangents move with the normal.
* `backward` takes gradients over the pool: `grad_dist` (naconmax,) float, `grad_pos` vec3,
  `grad_frame` mat33, and differentiates at the inputs of the last `forward`, which must still hold
  their values. It ADDS (atomically) to `grad_geom_xpos` (nworld, ngeom) vec3, `grad_geom_xmat`
  (nworld, ngeom) mat33 and, if given, `grad_geom_size` (shaped as `m.geom_size`) vec3. Rows of
  `grad_*` beyond nacon are not read. Nobody's `.grad` is touched; all arrays lack `requires_grad`.
* The gradient with respect to `geom_xmat` is ambient: d/d(entry) of each of the nine entries, as if
  they were independent. Its part along the rotations is what means something: contract it with
  d(xmat)/d(quaternion), or with xmat' = [theta]x xmat for a rotation theta in the world.
* Both can be captured in a graph, on the CPU and on CUDA. One thread a contact; threads beyond
  nacon return at once.
* `unsupported` names the pairs of geom types that can touch in this model and have no rule. The
  caller refuses such a model; the contacts of such pairs are copied and get no gradient.
"""
