"""Short models that together have every element of MuJoCo's XML that physics feels.

They step as in C MuJoCo; `xml_refused.py` has what MuJoCo Warp lacks.
"""

_CHAIN = """
    <body name="a" pos="0 0 1"><joint name="a" axis="0 1 0"/>
      <geom name="a" type="capsule" size="0.05" fromto="0 0 0 0.4 0 0"/><site name="sa"/>
      <body name="b" pos="0.4 0 0"><joint name="b" axis="0 1 0"/>
        <geom name="b" type="capsule" size="0.04" fromto="0 0 0 0.3 0 0.1"/>
        <site name="sb" pos="0.3 0 0.1"/></body></body>
"""


def mujoco_xml(worldbody: str, rest: str = "", options: str = "") -> str:
  return f"<mujoco>{options}<worldbody>{worldbody}</worldbody>{rest}</mujoco>"


def _falling(geom: str, height: float) -> str:
  return f'<body pos="{height} 0 {height}"><freejoint/>{geom}</body>'


_UNTOUCHED = '<contact contype="0" conaffinity="0" selfcollide="none"/>'


def flexcomp(rest: str, **attributes: str | int) -> str:
  """A flexcomp that touches nothing, a cloth of 4 by 3 unless attributes say otherwise."""
  usual = dict(name="f", type="grid", count="4 3 1", spacing="0.1 0.1 0.1", pos="0 0 1")
  usual |= dict(radius="0.01", dim="2", mass="0.2")
  words = " ".join(f'{key}="{value}"' for key, value in (usual | attributes).items())
  contact = "" if "<contact" in rest else _UNTOUCHED
  return f"<flexcomp {words}>{contact}{rest}</flexcomp>"


_TRILINEAR = dict(count="3 3 3", dim="3", dof="trilinear")
_ELASTIC = '<elasticity young="1e3" poisson="0.1" damping="0.01"/>'

STEPPED = {
  "joints": mujoco_xml(
    """
    <body pos="0 0 2"><freejoint align="false"/><geom type="box" size="0.1 0.2 0.3"/>
      <body pos="0 0 -0.3"><joint type="ball" pos="0 0 0.1" stiffness="2" damping="0.1 0.01"
        armature="0.01" range="0 0.5" frictionloss="0.01" solimpfriction="0.8 0.9 0.01 0.5 2"
        solreffriction="0.03 1"/>
        <geom size="0.1" pos="0 0 -0.2"/></body></body>
    <body pos="1 0 1"><joint type="slide" axis="1 0 1" range="-0.1 0.001" margin="0.01"
      solimplimit="0.8 0.9 0.01 0.5 2" solreflimit="0.05 1" springref="0.2" stiffness="10"/>
      <geom size="0.1"/>
      <body pos="0 0 -0.2"><joint type="hinge" axis="0 1 0" ref="0.3" springdamper="0.1 0.5"
        actuatorgravcomp="true" name="comp" actuatorfrcrange="-0.5 0.5"/>
        <geom size="0.1" pos="0.2 0 0"/></body></body>
    <body pos="2 0 1" gravcomp="0.7"><joint axis="0 1 0" stiffness="20" springyield="0.05"/>
      <inertial pos="0.1 0 0" mass="1" fullinertia="0.02 0.03 0.04 0.001 0.002 0.003"/></body>
    <body pos="3 0 1"><joint axis="0 1 0"/>
      <inertial pos="0.1 0.1 0" mass="1" diaginertia="0.02 0.03 0.04" euler="10 20 30"/></body>""",
    '<actuator><motor joint="comp" gear="3"/></actuator>',
  ),
  "equalities": mujoco_xml(
    _CHAIN
    + """
    <body name="c" pos="0.7 0 1.1"><freejoint/><geom type="box" size="0.1 0.1 0.1" contype="0"
      conaffinity="0"/>
      <site name="sc" pos="0.02 0 0"/></body>
    <body name="d" pos="2 0 1"><freejoint/><geom size="0.1"/><site name="sd"/></body>
    <body name="e" pos="2.3 0 1"><freejoint/><geom size="0.1"/><site name="se" pos="-0.3 0 0"/>
    </body>""",
    """
    <tendon><fixed name="t1"><joint joint="a" coef="1"/></fixed>
      <fixed name="t2"><joint joint="b" coef="2"/></fixed></tendon>
    <equality>
      <connect body1="b" body2="c" anchor="0.3 0 0.1" solref="0.05 1"/>
      <connect site1="sd" site2="se" solimp="0.8 0.9 0.01 0.5 2"/>
      <weld body1="c" body2="d" anchor="0.1 0 0" relpose="1.3 0.05 0 1 0.05 0 0"
        torquescale="0.5" solref="0.1 1"/>
      <weld site1="sa" site2="sb" active="false"/>
      <joint joint1="a" joint2="b" polycoef="0.1 0.5 0.1 0 0"/>
      <tendon tendon1="t1" tendon2="t2" polycoef="0.05 1 0 0 0"/>
      <tendon tendon1="t2" polycoef="0.1 0 0 0 0" active="false"/>
    </equality>""",
  ),
  "actuator shortcuts": mujoco_xml(
    _CHAIN + '<geom type="plane" size="5 5 1"/><body name="pad" pos="2 0 0.099"><freejoint/>'
    '<geom size="0.1"/></body>',
    """
    <actuator>
      <general joint="a" dyntype="filterexact" dynprm="0.1" gainprm="2" biastype="affine"
        biasprm="0.1 -1 -0.1" actlimited="true" actrange="-0.1 0.2" actearly="true"/>
      <general joint="b" dyntype="filter" dynprm="0.05" gaintype="affine" gainprm="1 0.2 0.1"/>
      <motor joint="a" gear="3" ctrlrange="-0.2 0.2" forcerange="-0.5 0.5" armature="0.01"/>
      <position joint="a" kp="4" dampratio="0.7" timeconst="0.1" inheritrange="0"/>
      <position joint="b" kp="3" kv="0.2" damping="0.1"/>
      <velocity joint="b" kv="0.5"/>
      <intvelocity joint="a" kp="2" kv="0.1" actrange="-1 1"/>
      <damper joint="b" kv="0.3" ctrlrange="0 1"/>
      <cylinder joint="a" timeconst="0.1" diameter="1.5" bias="0.1 -0.2 -0.1"/>
      <muscle joint="b" lengthrange="-1 1" timeconst="0.01 0.04" tausmooth="0.01" force="3"
        scale="20" lmin="0.5" lmax="1.6" vmax="1.5" fpmax="1.3" fvmax="1.2" range="0.75 1.05"/>
      <adhesion body="pad" gain="2" ctrlrange="0 1"/>
      <dcmotor joint="a" motorconst="0.5" resistance="2" inductance="0.01" damping="0.02"
        cogging="0.01 4 0.1" nominal="12 1 10" saturation="1 2 3"/>
      <motor joint="b" delay="0.006" nsample="4" interp="linear"/>
    </actuator>""",
  ),
  "transmissions": mujoco_xml(
    _CHAIN
    + """<site name="fixed" pos="0.2 0 0.5" euler="0 0 30"/>
    <body name="f" pos="2 0 1"><joint name="ball" type="ball"/><geom size="0.1" pos="0.1 0 0"/>
      </body>""",
    """
    <tendon><spatial name="t"><site site="fixed"/><site site="sb"/></spatial></tendon>
    <actuator>
      <motor joint="a"/>
      <motor joint="ball" gear="1 0.5 0.2"/><motor jointinparent="ball" gear="0.2 1 0.5"/>
      <motor tendon="t" gear="2"/>
      <motor site="sb" gear="1 2 3 0.1 0.2 0.3"/>
      <motor site="sb" refsite="fixed" gear="1 2 3 0.1 0.2 0.3"/>
      <general slidersite="sa" cranksite="sb" cranklength="0.5" gainprm="2"/>
    </actuator>""",
  ),
  "tendons": mujoco_xml(
    _CHAIN
    + """
    <site name="top" pos="0.3 0 1.6"/><site name="side" pos="0.2 0 1.25"/>
    <geom name="drum" type="cylinder" size="0.08 0.1" pos="0.2 0 1.3" euler="90 0 0" contype="0"/>
    <geom name="globe" size="0.15" pos="0.5 0.02 1.3" contype="0"/>
    <site name="inside" pos="0.5 0.02 1.35"/>""",
    """
    <tendon>
      <fixed stiffness="5" springlength="0.1" damping="0.2" frictionloss="0.1" range="-0.1 0.1"
        limited="true" margin="0.01" armature="0.05" solreflimit="0.05 1" solreffriction="0.04 1"
        solimplimit="0.8 0.9 0.01 0.5 2" solimpfriction="0.8 0.9 0.01 0.5 2">
        <joint joint="a" coef="1"/><joint joint="b" coef="-0.5"/></fixed>
      <spatial name="wrap" stiffness="10" springlength="0.1 0.3" actuatorfrcrange="-0.5 0.5">
        <site site="top"/><geom geom="drum" sidesite="side"/><site site="sb"/>
        <pulley divisor="2"/><site site="top"/><geom geom="globe"/><site site="sa"/></spatial>
      <spatial springyield="0.01" stiffness="10"><site site="top"/>
        <geom geom="globe" sidesite="inside"/><site site="sb"/></spatial>
    </tendon>
    <actuator><motor tendon="wrap" gear="3"/></actuator>""",
  ),
  "geoms on a plane": mujoco_xml(
    '<geom type="plane" size="5 5 1" pos="0 0 0.001" surfacevel="0.1 0 0 0 0 0.2"/>'
    '<body pos="0 0 0.1"><freejoint/><geom size="0.1" condim="1"/></body>'
    '<body pos="1 0 0.1"><freejoint/><geom type="capsule" size="0.1 0.2" euler="0 90 0"'
    ' condim="4" friction="0.7 0.01 0.001"/></body>'
    '<body pos="2 0 0.1"><freejoint/><geom type="ellipsoid" size="0.3 0.2 0.1" condim="6"/></body>'
    '<body pos="3 0 0.2"><freejoint/><geom type="cylinder" size="0.1 0.2"/></body>'
    '<body pos="4 0 0.3"><freejoint/><geom type="box" size="0.1 0.2 0.3" adhesion="2"/></body>'
    '<body pos="5 0 0.1"><freejoint/><geom type="mesh" mesh="wedge"/></body>',
    '<asset><mesh name="wedge" vertex="0 0 0 .5 0 0 0 .5 0 0 0 .5" inertia="exact"/></asset>',
    '<option cone="elliptic" impratio="2"/>',
  ),
  "a height field": mujoco_xml(
    '<geom type="hfield" hfield="hills"/><body pos="0.1 0.2 0.28"><freejoint/>'
    '<geom size="0.1" condim="4"/></body>',
    '<asset><hfield name="hills" nrow="3" ncol="3" size="1 1 0.2 0.1"'
    ' elevation="0 1 0 1 1 1 0 1 0"/></asset>',
  ),
  "contacts": mujoco_xml(
    '<geom name="floor" type="plane" size="5 5 1"/>'
    '<body name="p" pos="0 0 0.1"><freejoint/><geom name="p" size="0.1"/></body>'
    '<body name="q" pos="0 0 0.295"><freejoint/><geom name="q" size="0.1" priority="1"'
    ' solref="0.05 1" solimp="0.8 0.9 0.01 0.5 2" margin="0.01" gap="0.002"/></body>'
    '<body name="r" pos="0.19 0 0.3"><freejoint/><geom size="0.1" solmix="3" contype="2"'
    ' conaffinity="3"/></body>'
    '<body name="s" pos="0.19 0.19 0.3"><freejoint/><geom size="0.1"/></body>',
    '<contact><pair geom1="p" geom2="q" condim="4" friction="0.5 0.4 0.01 0.001 0.001"'
    ' solref="0.03 1" solreffriction="0.02 1" solimp="0.9 0.95 0.01 0.5 2" margin="0.02"'
    ' gap="0.001" adhesion="1"/><exclude body1="r" body2="s"/></contact>',
  ),
  "fluid": mujoco_xml(
    '<body pos="0 0 1"><freejoint/><geom type="box" size="0.1 0.2 0.3"/></body>'
    '<body pos="1 0 1"><freejoint/><geom type="ellipsoid" size="0.1 0.2 0.3"'
    ' fluidshape="ellipsoid" fluidcoef="0.5 0.25 1.5 1 1"/></body>',
    options='<option density="100" viscosity="0.5" wind="1 2 3"/>',
  ),
  "cameras and lights": mujoco_xml(
    _CHAIN
    + """<camera mode="targetbody" target="b" pos="1 -1 1"/><light mode="targetbody" target="b"/>
    <camera mode="targetbodycom" target="b" pos="1 1 1"/>
    <body pos="0 1 1"><joint/><geom size="0.1" pos="0 0.1 0"/>
      <camera mode="track" pos="0 0.1 0"/><camera mode="trackcom" pos="0.1 0 0"/>
      <light mode="track" pos="0 0 1"/><light mode="trackcom" pos="0 1 1"/>
      <camera name="eye" fovy="60" resolution="8 8"/></body>""",
    '<sensor><framepos objtype="camera" objname="eye"/></sensor>',
  ),
  "mocap and a keyframe": mujoco_xml(
    '<body name="m" mocap="true" pos="0 0 1"/>'
    '<body name="n" pos="0 0 0.8"><freejoint/><geom size="0.1"/></body>',
    '<equality><weld body1="m" body2="n" solref="0.1 1"/></equality>'
    '<actuator><general body="n" dyntype="integrator" gaintype="fixed"/></actuator>'
    '<keyframe><key time="0.5" qpos="0.1 0 0.9 1 0 0 0" qvel="0.1 0.2 0.3 0 0 1" act="0.3"'
    ' ctrl="0.2" mpos="0.1 0.1 1" mquat="1 0.1 0 0"/></keyframe>',
  ),
  "replicate, frames and defaults": mujoco_xml(
    '<frame pos="0 0 1" euler="0 0 30"><replicate count="3" offset="0.5 0 0" euler="0 0 10">'
    '<body childclass="heavy"><joint class="stiff"/><geom pos="0.2 0 0"/></body></replicate>'
    "</frame>",
    options="""<default><geom size="0.1"/><default class="heavy"><geom density="5000"/>
      <joint axis="0 1 0" damping="0.1"/><default class="stiff"><joint stiffness="30"/></default>
      </default></default>""",
  ),
  "an attached model": mujoco_xml(
    '<attach model="leg" body="thigh" prefix="left_"/>'
    '<frame pos="0 1 0"><attach model="leg" body="thigh" prefix="right_"/></frame>',
    options='<asset><model name="leg" file="leg.xml"/></asset>',
  ),
  "cloths": mujoco_xml(
    flexcomp('<edge equality="true" solref="0.05 1"/><pin gridrange="0 0 0 2"/><pin grid="3 0"/>')
    + flexcomp(
      '<elasticity young="1e3" poisson="0.2" thickness="0.01" damping="0.01" elastic2d="both"/>',
      **dict(name="g", pos="1 0 1"),
    ),
  ),
  "cables": mujoco_xml(
    flexcomp('<edge equality="true"/><pin id="0"/>', count="5 1 1", dim="1")
    + flexcomp(
      '<edge stiffness="20" damping="0.1"/><pin range="0 1"/>',
      **dict(count="5 1 1", dim="1", name="g", pos="1 0 1"),
    ),
  ),
  "soft bodies": mujoco_xml(
    flexcomp(
      '<elasticity young="1e3" poisson="0.1" damping="0.01"/>', count="3 3 3", dim="3", dof="full"
    )
    + flexcomp(
      '<elasticity young="1e3" poisson="0.1" damping="0.01"/>',
      **dict(count="3 3 3", dim="3", dof="trilinear", name="g", pos="1 0 1"),
    )
    + flexcomp('<edge equality="strain"/>', count="3 3 3", dim="3", dof="trilinear", name="h"),
  ),
  "a flex of bodies": mujoco_xml(
    "".join(
      f'<body name="v{i}" pos="{0.1 * (i % 2)} {0.1 * (i // 2)} 1"><freejoint/>'
      '<geom size="0.01" contype="0" conaffinity="0"/></body>'
      for i in range(4)
    ),
    '<deformable><flex name="flex" dim="2" body="v0 v1 v2 v3" element="0 1 2 1 3 2" radius="0.01"'
    ' vertex="0 0 0 0 0 0 0 0 0 0 0 0"><contact contype="0" conaffinity="0"/>'
    '<elasticity young="100" poisson="0.1" thickness="0.01" damping="0.01"/></flex>'
    '<flex name="edges" dim="1" body="v0 v3" element="0 1" vertex="0 0 0 0 0 0" radius="0.01">'
    '<contact contype="0" conaffinity="0"/></flex>'
    '<flex name="spring" dim="1" body="v1 v2" element="0 1" vertex="0 0 0 0 0 0" radius="0.01">'
    '<contact contype="0" conaffinity="0"/><edge stiffness="10" damping="0.1"/></flex></deformable>'
    '<equality><flex flex="edges"/></equality>',
  ),
  "flex contacts": mujoco_xml(
    '<geom type="plane" size="5 5 1"/>'
    + flexcomp(
      '<edge equality="true"/><contact selfcollide="none" condim="3" margin="0.002"/>',
      **dict(pos="0 0 0.0095", count="3 3 1"),
    ),
  ),
  "rods": mujoco_xml(
    flexcomp(
      '<elasticity young="1e4" poisson="0.1" section="circle" sectionsize="0.01 0.005"/>'
      '<pin id="0"/>',
      **dict(count="5 1 1", dim="1"),
    )
    + flexcomp('<edge equality="true"/>', type="disc", count="5 5 1", name="g", pos="1 0 1"),
  ),
  "plasticity": mujoco_xml(
    flexcomp(
      '<elasticity young="1e4" poisson="0.1" thickness="0.01" elastic2d="both" yield="0.01 0.01"'
      ' shear="1e3"/><pin gridrange="0 0 0 2"/>'
    )
    + flexcomp(
      '<elasticity young="1e4" poisson="0.1" yield="0.01"/>',
      **dict(dim="3", count="3 3 2", name="g", pos="1 0 1"),
    )
    + '<body pos="2 0 1"><joint axis="0 1 0" stiffness="20" springyield="0.001"/>'
    '<geom size="0.1" pos="0.2 0 0"/></body>',
    options='<option integrator="discrete"/>',
  ),
  "cells": mujoco_xml(
    flexcomp(
      '<edge equality="strain" solref="0.05 1"/>',
      **dict(_TRILINEAR, cellcount="2 1 1"),
    )
    + flexcomp("", **dict(_TRILINEAR, name="h", pos="2 0 1"))
    + '<body name="ball" pos="1 0 1"><freejoint/><geom size="0.01" contype="0"/>'
    + flexcomp(_ELASTIC, type="ellipsoid", dof="radial", dim="3", count="4 4 4", name="g")
    + "</body>",
    '<equality><flexstrain flex="h" cell="0 0 0"/></equality>',
  ),
  "sleep": mujoco_xml(
    '<geom type="plane" size="5 5 1"/><body pos="0 0 0.1"><freejoint/><geom size="0.1"/></body>'
    '<body pos="1 0 1"><freejoint/><geom size="0.1"/></body>',
    options='<option sleep_tolerance="0.1"><flag sleep="enable"/></option>',
  ),
  "sensors of touch, users and cameras": mujoco_xml(
    '<geom name="floor" type="plane" size="5 5 1"/>'
    '<body name="ball" pos="0 0 0.099"><freejoint/><geom name="ball" size="0.1"/>'
    '<site name="ball" size="0.2"/></body><body name="top" pos="1 0 1"><freejoint/>'
    '<geom name="top" size="0.1"/><camera name="eye" resolution="2 2" pos="0 0 -0.2"/></body>',
    """<sensor><touch site="ball"/><user dim="2"/><rangefinder camera="eye" data="dist normal"/>
      <distance body1="ball" body2="top" cutoff="2"/><normal geom1="ball" body2="top" cutoff="2"/>
      <fromto body1="ball" geom2="top" cutoff="2"/>
      <contact body1="ball" data="found force torque dist pos normal tangent" num="2"/>
      <contact subtree1="ball" geom2="floor" data="found linvel angvel" reduce="mindist"/>
      <contact site="ball" data="force pos" reduce="maxforce"/>
      <framepos objtype="body" objname="top" delay="0.004" nsample="4" interp="linear"/>
      <accelerometer site="ball" interval="0.004 0" nsample="2"/></sensor>""",
  ),
}
ASSETS = {
  "leg.xml": b"""<mujoco><worldbody><body name="thigh" pos="0 0 1"><joint axis="0 1 0"/>
    <geom type="capsule" size="0.05" fromto="0 0 0 0.1 0 -0.3"/></body></worldbody></mujoco>""",
}
