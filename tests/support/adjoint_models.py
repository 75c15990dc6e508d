"""Models for the tests of the adjoint, each a feature next to the others that it meets."""

import re

SMOOTH = """<mujoco><option timestep="0.004"><flag contact="disable"/></option><worldbody>
  <body name="moc" mocap="true" pos=".9 .05 .4"><geom type="sphere" size=".02"/></body>
  <body pos="0 0 1" quat=".9 .1 .2 .3">
    <joint type="slide" axis="1 1 0" stiffness="7" springref=".1" damping=".4" armature=".2"/>
    <joint type="ball" pos=".1 .05 -.02" damping="3" armature=".1" stiffness="5"/>
    <geom type="box" size=".1 .2 .3" pos=".05 .1 0"/>
    <body pos=".2 0 .3">
      <joint type="slide" axis="0 .3 1" ref=".05" stiffness="3 1 2" damping="1 2 3"/>
      <geom type="capsule" size=".05 .2" euler="30 0 0"/></body>
    <body pos="-.2 .1 .3" gravcomp=".4">
      <joint type="hinge" axis="0 .3 1" damping="2"/><joint type="slide" axis="1 0 .2"/>
      <joint type="hinge" axis="1 0 .1" pos="0 .1 .1" stiffness="1 2 3"/>
      <geom type="box" size=".05 .1 .2"/>
      <body pos=".1 .1 0" euler="0 40 0"><geom type="sphere" size=".1"/>
        <body pos="0 0 .2"><joint type="ball" pos="0 .02 .1" damping=".1 .2 .3"/>
          <geom type="capsule" size=".04 .1" euler="0 50 0"/></body></body></body>
  </body>
  <body pos="1 0 0"><joint type="free" stiffness="5 1 2" damping=".3 .1 .1"/>
    <geom type="capsule" size=".1 .3" pos=".1 0 0"/></body>
  <body pos="2 0 0"><freejoint/><geom type="box" size=".1 .3 .2" pos=".1 0 0"/></body>
</worldbody></mujoco>"""

ACTUATED = """<mujoco><option timestep="0.004"><flag contact="disable"/></option><worldbody>
  <site name="w0" pos="-.3 .1 1.1"/>
  <body name="base" pos="0 0 1" quat=".9 .1 .2 .3">
    <joint name="s" type="slide" axis="1 1 0" stiffness="7" damping=".4" armature=".2"/>
    <joint name="b" type="ball" pos=".1 .05 -.02" damping="3" armature=".1"/>
    <geom type="box" size=".1 .2 .3" pos=".05 .1 0"/>
    <site name="sa" pos=".1 .05 .02" euler="10 20 30"/>
    <body pos=".2 0 .3">
      <joint name="s2" type="slide" axis="0 .3 1" ref=".05" stiffness="3 1 2" damping="1 2 3"/>
      <geom type="capsule" size=".05 .2" euler="30 0 0"/>
      <body name="arm" pos="-.2 .1 .3" gravcomp=".4"><joint name="h" axis="0 .3 1" damping="2"/>
        <joint name="h2" axis="1 0 .1" pos="0 .1 .1"/><geom type="box" size=".05 .1 .2"/>
        <site name="sb" pos=".02 .1 .2" euler="0 20 30"/>
        <body pos=".1 .1 0" euler="0 40 0"><joint name="h3" axis="0 1 0"/>
          <geom name="ball" type="sphere" size=".1"/><site name="sc" pos=".1 0
            .1"/></body></body></body>
  </body>
  <body pos="1 0 0"><joint name="fr" type="free" damping=".3 .1 .1"/>
    <geom type="capsule" size=".1 .3" pos=".1 0 0"/>
    <site name="sf" pos=".1 0 .2" euler="20 30 10"/>
    <body pos=".1 .2 .3" euler="20 40 10"><geom type="box" size=".1 .2 .05" pos=".1 .2 0"/></body>
  </body></worldbody>
  <tendon>
    <fixed name="ft" stiffness="2" damping=".3" armature=".1">
      <joint joint="h" coef="1"/><joint joint="h3" coef="-.7"/></fixed>
    <spatial name="sp" stiffness="20 1 2" damping=".5 .1 .2" springlength=".1 .3">
      <site site="w0"/><site site="sa"/><site site="sc"/></spatial>
    <spatial name="pu" stiffness="3" armature=".2"><site site="w0"/><site site="sb"/><pulley
      divisor="2"/>
      <site site="sa"/><site site="sc"/></spatial>
  </tendon>
  <actuator>
    <motor joint="h" gear="2" ctrllimited="true" ctrlrange="-.5 .5"/>
    <general joint="s" gainprm="20 3 -1.5" gaintype="affine" biastype="affine"
      biasprm=".1 -20 -2"/>
    <general joint="h2" dyntype="filter" dynprm=".05" gainprm="1.5" biastype="affine"
      biasprm="0 -1 -.1"/>
    <general joint="h3" dyntype="integrator" gainprm=".6" actlimited="true" actrange="-2 2"/>
    <general tendon="sp" dyntype="filterexact" dynprm=".03" gainprm="4" actearly="true"/>
    <general site="sf" gear=".3 .1 0 .02 .05 .01" gainprm="1"/>
    <general name="ref" site="sb" refsite="sa" gear=".3 .1 .2 .2 .5 .1" gainprm="1"
      biastype="affine"
      biasprm="0 -2 -.3"/>
    <general joint="b" gear=".3 .1 .2" gainprm="1" biastype="affine" biasprm="0 -2 -.3"/>
    <general jointinparent="b" gear=".3 .1 .2" gainprm="1" biastype="affine" biasprm="0 -2 0"/>
    <general jointinparent="fr" gear=".3 .1 .2 .1 .2 .3" gainprm="1"/>
    <general cranksite="sb" slidersite="w0" cranklength="2.1" gear="1.5" gainprm="2"
      biastype="affine" biasprm="0 -1 -.2"/>
    <position joint="s2" kp="3" kv=".2" forcelimited="true" forcerange="-.5 .5"/>
    <muscle tendon="ft" ctrlrange="0 1" timeconst=".01 .04" range=".75 1.05" force="10"
      lengthrange="-.5 1"/>
  </actuator></mujoco>"""

CONSTRAINED = """<mujoco><option timestep="0.004"><flag contact="disable"/></option>
  <default><equality solref=".03 .9" solimp=".6 .95 .02"/></default><worldbody>
  <site name="w0" pos="-.3 .1 1.1"/>
  <body name="moc" mocap="true" pos=".9 .05 .42"><geom type="sphere" size=".02"/></body>
  <body name="a" pos="0 0 .75" gravcomp=".4">
    <joint name="ball" type="ball" damping=".3" stiffness=".8" range="0 .35" limited="true"
      armature=".005" solimplimit=".5 .95 .05"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass=".8"/>
    <site name="sa" pos=".03 0 -.2"/>
    <body name="b" pos="0 0 -.3" euler="0 20 0">
      <joint name="h1" axis="0 1 0" damping=".3" frictionloss=".12" range="-20 25" limited="true"
        solimplimit=".5 .95 .05" margin=".01"/>
      <joint name="s1" type="slide" axis=".2 0 1" damping="2" stiffness="40" frictionloss=".05"
        range="-.02 .02" limited="true" solimplimit=".5 .95 .02"/>
      <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".04" mass=".5"/>
      <site name="sb" pos="0 .02 -.25"/>
      <body name="c" pos=".05 0 -.1">
        <joint name="h2" axis="1 0 0" damping=".1"/>
        <joint name="h3" axis="0 .5 1" damping=".1" armature=".002"/>
        <geom type="box" size=".05 .02 .03" pos=".06 0 0" mass=".3"/>
        <site name="sc" pos=".1 0 0"/></body></body></body>
  <body name="free" pos=".12 .02 .07" euler="85 20 30"><freejoint/>
    <geom type="capsule" size=".06 .12" mass=".7"/>
    <geom type="box" size=".02 .05 .03" pos=".02 .03 .01" mass=".4"/>
    <site name="sf" pos="0 0 .1" euler="10 20 30"/></body>
  <body name="d1" pos=".6 0 .5"><joint name="k1" axis="0 1 0" damping=".05"/>
    <geom type="capsule" fromto="0 0 0 .2 0 -.05" size=".02" mass=".3"/>
    <body name="d2" pos=".2 0 -.05"><joint name="k2" axis="0 1 .2" damping=".05"/>
      <geom type="capsule" fromto="0 0 0 .15 0 -.05" size=".02" mass=".2"/></body></body>
  <body name="bb" pos="-.5 .3 .6"><joint name="bj" type="ball"/>
    <geom type="box" size=".08 .05 .03" pos=".05 0 0" mass=".5"/></body>
  </worldbody>
  <tendon>
    <fixed name="ft" limited="true" range="-.1 .12" frictionloss=".03" damping=".1" stiffness="2"
      solimplimit=".5 .95 .1" armature=".01">
      <joint joint="h2" coef="1"/><joint joint="h3" coef="-.7"/></fixed>
    <spatial name="sp" stiffness="20" damping=".5" springlength=".1 .3" limited="true"
      range="0 .52" solimplimit=".5 .95 .05">
      <site site="w0"/><site site="sa"/><site site="sc"/></spatial>
    <fixed name="f2"><joint joint="k2" coef="1"/></fixed>
  </tendon>
  <equality>
    <joint joint1="k1" joint2="h2" polycoef=".02 .5 .3 .1 .05"/>
    <tendon tendon1="f2" tendon2="ft" polycoef=".01 .4 .1 0 0"/>
    <connect body1="d2" body2="moc" anchor=".15 0 -.05"/>
    <weld body1="bb" body2="world" relpose=".45 -.3 -.6 .98 .1 .1 .1" torquescale=".7"/>
    <weld site1="sf" site2="sb" torquescale=".02" solref=".3 1"/>
    <connect site1="sc" site2="sa" solref=".4 1"/>
  </equality></mujoco>"""

CONTACTS = """<mujoco><option timestep="0.004"/>
  <default><geom condim="{condim}" friction=".7 .02 .01" solref=".02 1" solimp=".5 .95 .01"/>
  </default><worldbody>
  <geom type="plane" size="5 5 .1" euler="5 3 0" friction=".9 .01 .03" solref=".03 .9"
    solimp=".4 .9 .02"/>
  <body pos="0 0 .08"><freejoint/><geom type="sphere" size=".1" mass=".5"/></body>
  <body pos=".17 0 .12"><freejoint/>
    <geom type="sphere" size=".1" mass=".4" friction=".6 .01 .02"/></body>
  <body pos=".5 0 .08" euler="0 80 0"><freejoint/><geom type="capsule" size=".1 .2"/>
    <body pos="0 0 .3"><joint axis="0 1 0" damping=".2"/>
      <geom type="capsule" size=".08" fromto="0 0 0 .1 .1 .3" friction=".5 .01 .02"/></body></body>
  <body pos="-.5 0 .09" euler="3 2 0"><freejoint/>
    <geom type="box" size=".2 .15 .1" mass="2" solref="-300 -20"/></body>
</worldbody></mujoco>"""

WRAPPED = """<mujoco><option timestep="0.004"><flag contact="disable"/></option><worldbody>
  <site name="w0" pos="-.5 .02 1.05"/><site name="w1" pos="-.5 .3 1.1"/>
  <body pos="0 0 1"><joint name="h0" axis="0 1 0"/><joint axis="0 .2 1" damping=".1"/>
    <geom name="ball" type="sphere" size=".12"/><site name="up" pos="0 0 .2"/>
    <geom name="rod" type="cylinder" size=".1 .2" pos=".1 .3 0" euler="80 10 0"/>
    <site name="over" pos=".1 .3 .15"/>
    <geom name="ring" type="cylinder" size=".15 .02" pos="0 -.3 0" euler="90 0 0"/>
    <site name="within" pos="0.02 -.3 .01"/><site name="r0" pos="-.3 -.28 .16"/>
    <body pos=".4 0 0" gravcomp=".6"><joint name="h1" axis="0 1 .1" actuatorgravcomp="true"/>
      <geom type="capsule" size=".05 .1"/>
      <site name="e0" pos=".1 .02 .02"/><site name="e1" pos=".1 .3 -.05"/>
      <site name="r1" pos="-.1 -.31 .2"/></body></body>
  </worldbody>
  <tendon>
    <spatial name="sphere" stiffness="30" damping="1"><site site="w0"/>
      <geom geom="ball" sidesite="up"/><site site="e0"/></spatial>
    <spatial name="cylinder" stiffness="30" damping="1"><site site="w1"/><site site="w0"/>
      <pulley divisor="2"/><site site="w1"/><geom geom="rod"/><site site="e1"/></spatial>
    <spatial name="inside" stiffness="30" damping="1"><site site="r0"/>
      <geom geom="ring" sidesite="within"/><site site="r1"/></spatial>
  </tendon>
  <actuator><general tendon="inside" gainprm="2 1 .3" gaintype="affine"/></actuator></mujoco>"""

# For ACTUATED: a sensor of every kind that has a rule.
SENSORS = """<sensor>
  <jointpos joint="h"/><jointvel joint="s2"/><ballquat joint="b"/><ballangvel joint="b"/>
  <tendonpos tendon="sp"/><tendonvel tendon="sp" cutoff=".01"/><actuatorpos actuator="ref"/>
  <actuatorvel actuator="ref"/>
  <framepos objtype="site" objname="sb"/>
  <framepos objtype="body" objname="arm" reftype="site" refname="sa"/>
  <framequat objtype="xbody" objname="arm" reftype="body" refname="base"/>
  <framexaxis objtype="geom" objname="ball"/>
  <framezaxis objtype="site" objname="sc" reftype="geom" refname="ball"/>
  <framelinvel objtype="site" objname="sc" reftype="body" refname="base"/>
  <frameangvel objtype="body" objname="arm" reftype="site" refname="sf"/>
  <framelinvel objtype="body" objname="arm"/>
  <velocimeter site="sb"/><gyro site="sc"/><magnetometer site="sa"/>
  <subtreecom body="base"/><subtreelinvel body="arm"/><subtreeangmom body="base"/>
  <accelerometer site="sb"/><framelinacc objtype="geom" objname="ball"/>
  <frameangacc objtype="site" objname="sf"/><clock/>
  <actuatorfrc actuator="ref"/><jointactuatorfrc joint="h"/><tendonactuatorfrc tendon="ft"/>
  <jointactuatorfrc joint="s2" cutoff=".01"/>
</sensor></mujoco>"""

# DC motors with every state and controller, on joints and a tendon.
MOTORS = """<mujoco><option timestep="0.004"><flag contact="disable"/></option>
  <default><joint damping=".05" armature=".01"/>
    <geom type="capsule" size=".02" mass=".3"/></default>
  <worldbody><body pos="0 0 1"><joint name="a" axis="0 1 0"/><geom fromto="0 0 0 .2 0 0"/>
    <body pos=".2 0 0"><joint name="b" axis="0 1 .2"/><geom fromto="0 0 0 .2 0 .1"/>
      <body pos=".2 0 .1"><joint name="c" axis="1 0 0"/><geom fromto="0 0 0 .2 .1 0"/>
        <body pos=".2 .1 0"><joint name="d" axis="0 0 1"/><geom fromto="0 0 0 .2 0 .1"/>
          <body pos=".2 0 .1"><joint name="e" axis="0 1 0"/><geom fromto="0 0 0 .1 .1 .1"/>
          </body></body></body></body></body>
  </worldbody>
  <tendon><fixed name="t"><joint joint="d" coef="1"/><joint joint="e" coef="-.5"/></fixed></tendon>
  <actuator>
    <dcmotor joint="a" motorconst=".5" resistance="2" gear="3" ctrllimited="true" ctrlrange="-6 6"/>
    <dcmotor joint="b" motorconst=".5" resistance="2" gear="2" thermal="3 2 0 .004 25 25"
      cogging=".1 6 .3" lugre="30 .2 .1 .2 .3"/>
    <dcmotor joint="c" motorconst=".4" resistance="1.5" input="pos vel" controller="2 .5 .3 50 5 0"
      thermal="3 2 0 .004 25 25"/>
    <dcmotor joint="d" motorconst=".4" resistance="1.5" inductance="0 .02" input="vel ff voltage"
      controller="0 0 .3 0 0 2" thermal="3 2 0 .004 25 25"/>
    <dcmotor joint="e" motorconst=".4" resistance="1.5" inductance="0 .02" saturation="0 0 3"
      input="pos" controller="2 .5 .3" lugre="30 .2 .1 .2 .3"/>
    <dcmotor tendon="t" motorconst=".4" resistance="1.5" input="pos vel" controller="2 0 .3"
      cogging=".05 3 0" saturation=".2 0 0"/>
  </actuator></mujoco>"""

# Limits of sums of forces, damping and armature of actuators.
LIMITED = """<mujoco><option timestep="0.004"><flag contact="disable"/></option>
  <default><joint damping=".05" armature=".01"/>
    <geom type="capsule" size=".02" mass=".3"/></default>
  <worldbody><body pos="0 0 1" gravcomp=".7">
    <joint name="a" axis="0 1 0" actuatorgravcomp="true" actuatorfrcrange="-1.2 1.2"/>
    <geom fromto="0 0 0 .2 0 0"/>
    <body pos=".2 0 0" gravcomp=".4"><joint name="b" axis="0 1 .2" actuatorgravcomp="true"/>
      <geom fromto="0 0 0 .2 0 .1"/>
      <body pos=".2 0 .1"><joint name="c" axis="1 0 0" actuatorfrcrange="-.5 .5"/>
        <geom fromto="0 0 0 .2 .1 0"/>
        <body pos=".2 .1 0"><joint name="d" axis="0 0 1"/><geom fromto="0 0 0 .2 0 .1"/>
        </body></body></body></body>
  </worldbody>
  <tendon>
    <fixed name="t" actuatorfrcrange="-.2 .25"><joint joint="c" coef="1"/>
      <joint joint="d" coef="-.5"/></fixed>
    <fixed name="s" actuatorfrcrange="-2 1.5"><joint joint="b" coef=".3"/>
      <joint joint="c" coef=".5"/></fixed>
  </tendon>
  <actuator>
    <position joint="a" kp="2" kv=".1" damping=".2" armature=".02" gear="1.3"/>
    <general joint="a" gainprm=".5" damping=".1 .02 .03" armature=".01" gear=".7"/>
    <position tendon="t" kp="3" kv=".2" damping=".1 .03 .02" armature=".03" gear="1.2"/>
    <general tendon="t" gainprm="1" forcelimited="true" forcerange="-.1 .12"/>
    <position tendon="s" kp="3" kv=".2" damping=".3"/>
    <general tendon="s" gainprm="1" biastype="affine" biasprm="0 0 -.3" armature=".02"/>
  </actuator></mujoco>"""

# Servos whose setpoint is an angle, which they take to be the nearest of its kind.
AROUND = """<mujoco><option timestep="0.004"><flag contact="disable"/></option>
  <worldbody><body pos="0 0 1"><joint name="ball" type="ball" damping=".05"/>
    <geom type="capsule" size=".02" mass=".3" fromto="0 0 0 .1 .1 .1"/></body></worldbody>
  <actuator>
    <position joint="ball" kp="2" kv=".1" gear=".6 .5 .3"/>
    <intvelocity joint="ball" kp="2" gear=".2 .7 .3" actrange="-9 9"/>
    <position joint="ball" kp="2" gear=".2 .1 -.3" timeconst=".05"/>
  </actuator></mujoco>"""

# Bodies that stick to what they touch, or nearly touch.
ADHESION = """<mujoco><option timestep="0.004"/>
  <default><geom condim="{condim}" friction=".7 .02 .01" solimp=".5 .95 .01"/></default><worldbody>
  <geom type="plane" size="5 5 .1" euler="5 3 0" margin=".02" gap=".02"/>
  <body name="a" pos="0 0 .08"><freejoint/><geom type="sphere" size=".1" mass=".5"/></body>
  <body name="b" pos=".17 0 .12"><freejoint/><geom type="sphere" size=".1" mass=".4"/></body>
  <body pos=".5 0 .08" euler="0 80 0"><freejoint/><geom type="capsule" size=".1 .2"/>
    <body name="c" pos="0 0 .3"><joint axis="0 1 0" damping=".2"/>
      <geom type="capsule" size=".08" fromto="0 0 0 .1 .1 .3"/></body></body>
  <body name="d" pos="-.5 0 .115"><freejoint/><geom type="sphere" size=".1" mass=".5"/></body>
  </worldbody>
  <actuator>
    <adhesion body="a" gain="8" ctrlrange="0 1"/><adhesion body="b" gain="6" ctrlrange="0 1"/>
    <adhesion body="c" gain="9" ctrlrange="0 1"/><adhesion body="d" gain="3" ctrlrange="0 1"/>
  </actuator></mujoco>"""

# Delays of every interpolation, beside controls that act at once.
DELAYED = """<mujoco><option timestep="0.004"><flag contact="disable"/></option>
  <default><joint damping=".05" armature=".01"/>
    <geom type="capsule" size=".02" mass=".3"/></default>
  <worldbody><body pos="0 0 1"><joint name="a" axis="0 1 0"/><geom fromto="0 0 0 .2 0 0"/>
    <body pos=".2 0 0"><joint name="b" axis="0 1 .2"/><geom fromto="0 0 0 .2 0 .1"/>
      <body pos=".2 0 .1"><joint name="c" axis="1 0 0"/><geom fromto="0 0 0 .2 .1 0"/>
        <body pos=".2 .1 0"><joint name="d" axis="0 0 1"/><geom fromto="0 0 0 .2 0 .1"/>
        </body></body></body></body></worldbody>
  <actuator>
    <position joint="a" kp="3" kv=".1" delay=".0105" nsample="6"/>
    <motor joint="b" delay=".0105" nsample="6" interp="linear"/>
    <general joint="c" dyntype="filter" dynprm=".05" gainprm="2" delay=".0105" nsample="6"
      interp="cubic"/>
    <motor joint="d"/>
    <dcmotor joint="d" motorconst=".4" resistance="1.5" input="pos vel" controller="2 0 .3"
      delay=".0305" nsample="5" interp="linear"/>
    <motor joint="c" nsample="3"/>
  </actuator></mujoco>"""

# Both models of the forces of a fluid.
FLUID = """<mujoco><option timestep="0.004" density="30" viscosity=".4" wind=".5 -.3 .2">
  <flag contact="disable"/></option>
  <default><geom density="300"/></default><worldbody>
  <body pos="0 0 1" quat=".9 .1 .2 .3"><joint type="slide" axis="1 1 0" damping=".4"/>
    <joint type="ball" pos=".1 .05 -.02" damping="1"/>
    <geom type="box" size=".1 .2 .3" pos=".05 .1 0"/>
    <body pos=".2 0 .3"><joint axis="0 .3 1" damping=".1"/>
      <geom type="capsule" size=".05 .2" euler="30 0 0" fluidshape="ellipsoid"
        fluidcoef=".6 .3 1.4 .9 1.1"/>
      <geom type="ellipsoid" size=".05 .1 .2" pos=".1 .2 .1" euler="30 20 0"
        fluidshape="ellipsoid"/>
      <body pos=".2 0 .3"><joint axis="1 .3 0" damping=".1"/>
        <geom type="cylinder" size=".05 .2" euler="30 0 0" fluidshape="ellipsoid"/></body></body>
  </body>
  <body pos="1 0 0"><joint type="free" damping=".3"/>
    <geom type="capsule" size=".1 .3" pos=".1 0 0"/></body>
  <body pos="2 0 0"><freejoint/>
    <geom type="box" size=".1 .3 .2" pos=".1 0 0" fluidshape="ellipsoid"/>
    <body pos=".1 .2 .3" euler="20 40 10"><geom type="box" size=".1 .2 .05" pos=".1 .2 0"/></body>
  </body>
  </worldbody></mujoco>"""


def with_sensors(text: str, sensors: str) -> str:
  """A model with sensors added."""
  return text.replace("</mujoco>", f"<sensor>{sensors}</sensor></mujoco>")


def touching_bodies() -> str:
  """Bodies in contact, named a to e, each with a site of its name around it."""
  names = iter("abcdef")

  def with_site(found: re.Match) -> str:
    name = next(names)
    site = f'<site name="{name}" pos=".02 .01 0" type="sphere" size=".3"/>'
    return f'<body name="{name}" {found[1]}>{site}'

  return re.sub(r"<body (.*?)>", with_site, CONTACTS.format(condim=4))
